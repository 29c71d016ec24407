"""A Bloom filter with counters instead of bits."""

import struct

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from lsmkv_ext.filter.bloom cimport BlockedBloom
from lsmkv_ext.filter.counters cimport (
    COUNTERS_BLOCK,
    COUNTERS_STUCK,
    counters_add,
    counters_clear,
    counters_in_use,
    counters_stuck,
    counters_to_bits,
)
from lsmkv_ext.filter.curve cimport (
    filter_block_fpr,
    filter_blocks_for,
    filter_curve,
    filter_k_for,
    filter_keys_of,
    filter_millibits,
)
from lsmkv_ext.filter.kernel cimport FILTER_MAX_K, lsm_filter_block, lsm_filter_remix
from lsmkv_ext.filter.key_filter cimport GrowingFilter, fingerprint
from lsmkv_ext.filter.key_hasher cimport hash_key
from lsmkv_ext.port.pages cimport lsm_lines_alloc, lsm_pages_free

from lsmkv_ext.filter.family_format import KIND_COUNTING as _KIND_COUNTING, decode, encode, expand, refuse
from lsmkv_ext.filter.parameters import checked_bits, checked_capacity, checked_seed

cdef extern from * nogil:
    """
    /* A counter per bit of a BlockedBloom: counter b of a block is the half b & 1 of byte b >> 1 of its 256 bytes. Probes read
       beside a change, so both are atomic, byte by byte. */
    static inline uint32_t lsm_counter(const uint8_t* block, uint32_t b) {
        return (uint32_t)__atomic_load_n(block + (b >> 1), __ATOMIC_RELAXED) >> (4 * (b & 1)) & 15;
    }
    static inline void lsm_counter_set(uint8_t* block, uint32_t b, uint32_t n) {
        const uint32_t shift = 4 * (b & 1);
        const uint32_t byte = block[b >> 1];
        __atomic_store_n(block + (b >> 1), (uint8_t)((byte & ~(15u << shift)) | n << shift), __ATOMIC_RELAXED);
    }
    /* The counters of a key, each once. */
    static inline int lsm_counters_of(uint32_t h, uint32_t k, uint32_t* out) {
        int n = 0;
        for (uint32_t i = 0; i < k; i++) {
            const uint32_t bit = (h * LSM_FILTER_MUL[i]) >> 23;
            int known = 0;
            for (int j = 0; j < n; j++) known |= out[j] == bit;
            if (!known) out[n++] = bit;
        }
        return n;
    }
    """
    uint32_t lsm_counter(const uint8_t* block, uint32_t b) noexcept
    void lsm_counter_set(uint8_t* block, uint32_t b, uint32_t n) noexcept
    int lsm_counters_of(uint32_t h, uint32_t k, uint32_t* out) noexcept

cdef enum:
    PIECE = 4096                  # blocks, changed with the GIL: a fraction of a millisecond

_FIELDS = struct.Struct("<QIxxxx")    # blocks, millibits


cdef class CountingBloom(GrowingFilter):
    """CountingBloom(capacity, fpr=None, *, bits_per_key=None, seed=0)\n--\n\n\
    A Bloom filter from which keys can be removed. It takes four times the memory of a `BlockedBloom`.

    Each bit of a `BlockedBloom` with the same parameters is a counter here, from 0 to 15. A counter that reaches 15 stays
    there: its keys are never forgotten, even if they are removed (`stuck_counters`). A key that was added twice has to be
    removed twice. Remove only keys that were added: removing another one that `in` finds by mistake makes the filter
    forget keys. Any number of threads may use it; changes take turns.

    Raises `ValueError` or `TypeError` for a wrong parameter, and `MemoryError` if the counters do not fit into memory.

    >>> online = lsmkv.CountingBloom(1000)
    >>> online.add(b"ada")
    >>> online.remove(b"ada")
    >>> b"ada" in online
    False
    """

    # GIL-protected: changes of the counters, n_keys and n_stuck
    cdef uint8_t* counters
    cdef size_t n_bytes
    cdef uint64_t n_blocks_
    cdef uint32_t k_
    cdef uint32_t millibits
    cdef uint64_t n_keys          # added minus removed
    cdef uint64_t n_stuck

    def __init__(self, capacity, fpr=None, *, bits_per_key=None, seed=0):
        checked_capacity(capacity)
        cdef uint32_t millibits = filter_millibits(checked_bits(fpr, bits_per_key))
        cdef uint64_t hash_seed = checked_seed(seed)
        if self.counters != NULL:
            raise TypeError("a CountingBloom is made once")
        self.hash_seed = hash_seed
        self._own(filter_blocks_for(capacity, millibits), millibits, filter_k_for(millibits))

    def __dealloc__(self):
        lsm_pages_free(self.counters, self.n_bytes)

    cdef int _own(self, uint64_t n_blocks, uint32_t millibits, uint32_t k) except -1:
        cdef uint64_t limit = <uint64_t>1 << 55
        if 0 < n_blocks < limit:
            self.counters = <uint8_t*>lsm_lines_alloc(n_blocks * COUNTERS_BLOCK)
        if self.counters == NULL:
            raise MemoryError(f"no memory for a filter of {n_blocks} blocks of {COUNTERS_BLOCK} bytes")
        self.n_bytes = n_blocks * COUNTERS_BLOCK
        self.n_blocks_, self.millibits, self.k_ = n_blocks, millibits, k
        return 0

    cdef int _check(self) except -1:
        if self.counters == NULL:
            raise ValueError("this CountingBloom was not initialized")
        return 0

    # --- keys ------------------------------------------------------------------------------------------------------

    cdef uint8_t* _block(self, uint64_t h) noexcept nogil:
        return self.counters + lsm_filter_block(h, self.n_blocks_) * COUNTERS_BLOCK

    cdef bint _has(self, uint64_t h) noexcept nogil:
        cdef uint32_t at[FILTER_MAX_K]
        cdef int i, n = lsm_counters_of(lsm_filter_remix(h), self.k_, at)
        cdef const uint8_t* block = self._block(h)
        for i in range(n):
            if lsm_counter(block, at[i]) == 0:
                return False
        return True

    cdef bint _increment(self, uint64_t h) noexcept nogil:
        """Whether one of its counters was 0."""
        cdef uint32_t at[FILTER_MAX_K]
        cdef int i, n = lsm_counters_of(lsm_filter_remix(h), self.k_, at)
        cdef uint8_t* block = self._block(h)
        cdef uint32_t was
        cdef bint fresh = False
        for i in range(n):
            was = lsm_counter(block, at[i])
            fresh |= was == 0
            if was != COUNTERS_STUCK:
                lsm_counter_set(block, at[i], was + 1)
                self.n_stuck += was + 1 == COUNTERS_STUCK
        self.n_keys += 1
        return fresh

    cdef void _decrement(self, uint64_t h) noexcept nogil:
        cdef uint32_t at[FILTER_MAX_K]
        cdef int i, n = lsm_counters_of(lsm_filter_remix(h), self.k_, at)
        cdef uint8_t* block = self._block(h)
        cdef uint32_t was
        for i in range(n):
            was = lsm_counter(block, at[i])
            if was != COUNTERS_STUCK:
                lsm_counter_set(block, at[i], was - 1)
        self.n_keys -= self.n_keys != 0

    cdef bint _add_hash(self, uint64_t h) except -1:
        self._check()
        return self._increment(h)

    cdef bint _test_hash(self, uint64_t h) except -1:
        self._check()
        return self._has(h)

    cdef int _add_hashes(self, const uint64_t* hashes, size_t n) except -1 nogil:
        cdef size_t i
        with gil:
            for i in range(n):
                self._increment(hashes[i])
        return 0

    cdef int _test_hashes(self, const uint64_t* hashes, size_t n, uint8_t* out) except -1 nogil:
        cdef size_t i
        for i in range(n):
            out[i] = self._has(hashes[i])
        return 0

    def discard(self, key):
        """Remove a key that was added before. Returns False, and changes nothing, if it certainly was not.

        >>> online = lsmkv.CountingBloom(1000)
        >>> online.discard(b"ada")
        False
        """
        cdef uint64_t h = 0
        hash_key(key, self.hash_seed, &h)
        self._check()
        if not self._has(h):
            return False
        self._decrement(h)
        return True

    def remove(self, key):
        """Remove a key that was added before. Raises `KeyError`, and changes nothing, if it certainly was not.

        >>> online = lsmkv.CountingBloom(1000)
        >>> online.add(b"ada")
        >>> online.remove(b"ada")
        """
        if not self.discard(key):
            raise KeyError(key)

    def merge(self, CountingBloom other not None):
        """Add all keys of `other`. Raises `ValueError` unless both have the same size, bits per key and seed.

        >>> online, more = lsmkv.CountingBloom(1000), lsmkv.CountingBloom(1000)
        >>> more.add(b"ada")
        >>> online.merge(more)
        """
        cdef uint64_t i = 0, n
        if self._parameters() != other._parameters():
            raise ValueError(f"cannot merge filters of {self._parameters()} and {other._parameters()}")
        while i < self.n_blocks_:
            n = min(self.n_blocks_ - i, <uint64_t>PIECE)
            self.n_stuck += counters_add(self.counters + i * COUNTERS_BLOCK, other.counters + i * COUNTERS_BLOCK, n)
            i += n
            with nogil:
                pass              # other threads take their turn
        self.n_keys += other.n_keys

    def clear(self):
        """Remove every key, also from counters that are stuck. A key that is added meanwhile may be removed too.

        >>> online = lsmkv.CountingBloom(1000)
        >>> online.clear()
        """
        cdef uint64_t i = 0, n
        self._check()
        self.n_keys = 0
        while i < self.n_blocks_:
            n = min(self.n_blocks_ - i, <uint64_t>PIECE)
            self.n_stuck -= counters_clear(self.counters + i * COUNTERS_BLOCK, n)
            i += n
            with nogil:
                pass              # other threads take their turn

    # --- bytes -----------------------------------------------------------------------------------------------------

    def to_bloom(self):
        """Return a `BlockedBloom` of the present keys, with the same parameters and seed: a quarter of the size to ship.

        >>> online = lsmkv.CountingBloom(1000)
        >>> online.add(b"ada")
        >>> b"ada" in online.to_bloom()
        True
        """
        cdef BlockedBloom made = BlockedBloom.__new__(BlockedBloom)
        self._check()
        made._own(self.n_blocks_, self.k_, True, False)
        made.f.millibits, made.f.seed = self.millibits, self.hash_seed
        made.hash_seed = self.hash_seed
        made.made = True
        made.f.n_keys = self.n_keys
        with nogil:
            counters_to_bits(self.counters, self.n_blocks_, made.bits)
        return made

    def _blob(self):
        self._check()
        return encode(
            _KIND_COUNTING, self.k_, self.n_keys, self.hash_seed, _FIELDS.pack(self.n_blocks_, self.millibits),
            (<char*>self.counters)[:self.n_bytes],
        )

    @staticmethod
    def from_bytes(data):
        """Return the filter that `to_bytes` wrote. Raises `CorruptionError` if the bytes are damaged or incomplete.

        >>> online = lsmkv.CountingBloom(1000)
        >>> lsmkv.CountingBloom.from_bytes(online.to_bytes()) == online
        True
        """
        blob = decode(expand(data), _KIND_COUNTING)
        n_blocks, millibits = _FIELDS.unpack(blob.fields)
        if len(blob.payload) != n_blocks * COUNTERS_BLOCK or not n_blocks:
            raise refuse("bad length")
        if not (0 < blob.k <= FILTER_MAX_K and 0 < millibits <= 100_000):
            raise refuse("impossible geometry")
        return _restored(n_blocks, millibits, blob.k, blob.seed, blob.count, blob.payload)

    def __eq__(self, other):
        if not isinstance(other, CountingBloom):
            return NotImplemented
        cdef CountingBloom o = other
        return self._parameters() == o._parameters() and memcmp(self.counters, o.counters, self.n_bytes) == 0

    __hash__ = None

    def _parameters(self):
        self._check()
        return {"bits_per_key": self.bits_per_key, "k": self.k, "n_blocks": self.n_blocks, "seed": self.hash_seed}

    def _fingerprint(self):
        self._check()
        return f"{fingerprint(self.counters, self.n_bytes):016x}"

    def __repr__(self):
        return (f"<CountingBloom capacity={self.capacity} bits_per_key={self.bits_per_key:g} k={self.k} "
                f"count={self.count} stuck={self.stuck_counters}>")

    def __sizeof__(self):
        return sizeof(CountingBloom) + self.n_bytes

    # --- figures ---------------------------------------------------------------------------------------------------

    cdef uint64_t _in_use(self) except? 0:
        cdef uint64_t found
        self._check()
        with nogil:
            found = counters_in_use(self.counters, self.n_blocks_)
        return found

    @property
    def capacity(self):
        """The number of keys at the designed rate: the requested number, rounded up to whole blocks.

        >>> lsmkv.CountingBloom(1000).capacity >= 1000
        True
        """
        return self.n_blocks_ * 512000 // max(self.millibits, 1)

    @property
    def bits_per_key(self):
        """The counters per key at capacity: the bits of the `BlockedBloom` that it corresponds to.

        >>> lsmkv.CountingBloom(1000, bits_per_key=12).bits_per_key
        12.0
        """
        return self.millibits / 1000.0

    @property
    def k(self):
        """The counters per key.

        >>> lsmkv.CountingBloom(1000, bits_per_key=10).k
        6
        """
        return self.k_

    @property
    def n_blocks(self):
        """The number of 256-byte blocks.

        >>> lsmkv.CountingBloom(1024, bits_per_key=10).n_blocks
        20
        """
        return self.n_blocks_

    @property
    def nbytes(self):
        """The size of the counters in bytes.

        >>> lsmkv.CountingBloom(1024, bits_per_key=10).nbytes
        5120
        """
        return self.n_bytes

    @property
    def count(self):
        """The number of keys that were added, minus those removed.

        >>> lsmkv.CountingBloom(1000).count
        0
        """
        return self.n_keys

    @property
    def stuck_counters(self):
        """The number of counters that have reached 15 and never change again.

        >>> lsmkv.CountingBloom(1000).stuck_counters
        0
        """
        return self.n_stuck

    @property
    def fill_ratio(self):
        """The share of the counters that are not 0.

        >>> lsmkv.CountingBloom(1000).fill_ratio
        0.0
        """
        return self._in_use() / (512.0 * max(self.n_blocks_, <uint64_t>1))

    @property
    def approximate_count(self):
        """The number of distinct keys, estimated from the counters.

        >>> lsmkv.CountingBloom(1000).approximate_count
        0
        """
        return round(filter_keys_of(self._in_use(), self.n_blocks_, self.k_))

    @property
    def designed_fpr(self):
        """The false positive rate at capacity.

        >>> lsmkv.CountingBloom(1000, 0.01).designed_fpr <= 0.0101
        True
        """
        return filter_curve(self.bits_per_key, self.k_)

    @property
    def expected_fpr(self):
        """The false positive rate of the counters as they are now.

        >>> lsmkv.CountingBloom(1000).expected_fpr
        0.0
        """
        cdef double total = 0
        cdef uint64_t i
        self._check()
        with nogil:
            for i in range(self.n_blocks_):
                total += filter_block_fpr(<uint32_t>counters_in_use(self.counters + i * COUNTERS_BLOCK, 1), self.k_)
        return total / self.n_blocks_

    @property
    def saturated(self):
        """Whether it holds more keys than it was sized for.

        >>> lsmkv.CountingBloom(1000).saturated
        False
        """
        return self.approximate_count > self.capacity


cdef CountingBloom _restored(n_blocks, millibits, k, seed, count, const unsigned char[::1] counters):
    cdef CountingBloom made = CountingBloom.__new__(CountingBloom)
    made._own(n_blocks, millibits, k)
    made.hash_seed = seed
    made.n_keys = count
    memcpy(made.counters, &counters[0], made.n_bytes)
    made.n_stuck = counters_stuck(made.counters, n_blocks)
    return made
