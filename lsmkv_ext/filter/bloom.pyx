"""The public Bloom filter."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.filter.curve cimport (
    filter_blocks_for,
    filter_current_fpr,
    filter_curve,
    filter_estimate_keys,
    filter_k_for,
    filter_millibits,
)
from lsmkv_ext.filter.format cimport (
    FILTER_BAD_GEOMETRY,
    FILTER_HEADER_SIZE,
    filter_decode,
    filter_encode_header,
    filter_problem_text,
)
from lsmkv_ext.filter.kernel cimport (
    FILTER_BLOCK_BYTES,
    FilterProbe,
    filter_add_many,
    filter_choose,
    filter_fill_ratio,
    filter_probe,
    filter_probe_many,
    lsm_filter_block,
    lsm_filter_choose,
    lsm_filter_probe,
    lsm_filter_remix,
    lsm_filter_set,
    lsm_filter_simd,
)
from lsmkv_ext.filter.key_hasher cimport HASH_CHUNK, KeyHasher, hash_key
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.pages cimport lsm_lines_alloc, lsm_pages_free
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.filter.curve import bits_for_fpr

cdef const char* _EMPTY = ""


cdef int require_same(uint64_t mine, uint64_t theirs, str name) except -1:
    if mine != theirs:
        raise ValueError(f"cannot merge filters of different {name}: {mine} and {theirs}")
    return 0


cdef class BlockedBloom:
    """BlockedBloom(capacity, fpr=None, *, bits_per_key=None, seed=0)\n--\n\n\
    A Bloom filter: `in` is True for every key that was added, and rarely for another.

    It is sized for `capacity` keys and either a false positive rate (default 1 %) or bits per key. Filters with equal
    parameters and seeds can be merged. Any number of threads may use it.

    Raises `ValueError` or `TypeError` for a wrong parameter, and `MemoryError` if the bits do not fit into memory.

    >>> seen = lsmkv.BlockedBloom(1000, 0.01)
    >>> seen.add(b"ada")
    >>> b"ada" in seen
    True
    """

    def __cinit__(self, *args, **options):
        memset(&self.f, 0, sizeof(FilterC))
        self.bits = NULL
        self.n_bytes = 0
        self.made = False
        pthread_mutex_init(&self.mutex, NULL)
        self.f.k = 1                 # one valid, empty block until __init__ has run
        self.f.millibits = 1000
        self._own(1)

    def __init__(self, capacity, fpr=None, *, bits_per_key=None, seed=0):
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(f"capacity must be an int, not {type(capacity).__name__}")
        if not 0 < capacity < 1 << 57:
            raise ValueError(f"capacity must be positive and below 2**57, not {capacity}")
        if fpr is not None and bits_per_key is not None:
            raise TypeError("give fpr or bits_per_key, not both")
        if not isinstance(seed, int):
            raise TypeError(f"seed must be an int, not {type(seed).__name__}")
        if not 0 <= seed < 1 << 64:
            raise ValueError("seed must be an unsigned 64-bit number")
        if bits_per_key is None:
            rate = 0.01 if fpr is None else fpr
            if not 0 < rate < 1:
                raise ValueError(f"fpr must be between 0 and 1, not {fpr}")
            bits_per_key = bits_for_fpr(rate)
        cdef uint32_t millibits = filter_millibits(bits_per_key)
        if self.made:
            raise TypeError("a BlockedBloom is made once")
        self.f.millibits = millibits
        self.f.k = filter_k_for(self.f.millibits)
        self.f.seed = seed
        self._own(filter_blocks_for(capacity, self.f.millibits))
        self.made = True

    def __dealloc__(self):
        lsm_pages_free(self.bits, self.n_bytes)
        pthread_mutex_destroy(&self.mutex)

    cdef int _own(self, uint64_t n_blocks) except -1:
        """Replaces the bits by n_blocks empty blocks."""
        cdef uint64_t limit = <uint64_t>1 << 57
        cdef size_t n = n_blocks * FILTER_BLOCK_BYTES
        cdef uint8_t* bits = <uint8_t*>lsm_lines_alloc(n) if 0 < n_blocks < limit else NULL
        if bits == NULL:
            raise MemoryError(f"no memory for a filter of {n_blocks} blocks of 64 bytes")
        lsm_pages_free(self.bits, self.n_bytes)
        self.bits = bits
        self.n_bytes = n
        self.f.bits = bits
        self.f.n_blocks = n_blocks
        self.f.usable = 1
        return 0

    cdef void _add_hashes(self, const uint64_t* hashes, size_t n) noexcept nogil:
        cdef size_t fresh
        pthread_mutex_lock(&self.mutex)
        fresh = filter_add_many(self.bits, self.f.n_blocks, self.f.k, hashes, n)
        self.f.n_keys += fresh
        pthread_mutex_unlock(&self.mutex)

    cdef bint _add_one(self, object key) except -1:
        cdef uint64_t h = 0
        cdef bint fresh
        hash_key(key, self.f.seed, &h)
        pthread_mutex_lock(&self.mutex)
        fresh = lsm_filter_set(
            self.bits + lsm_filter_block(h, self.f.n_blocks) * FILTER_BLOCK_BYTES, lsm_filter_remix(h), self.f.k
        ) != 0
        self.f.n_keys += fresh
        pthread_mutex_unlock(&self.mutex)
        return fresh

    def add(self, key):
        """Add a key. Raises `TypeError` if it is not bytes-like.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.add(b"ada")
        """
        self._add_one(key)

    def __contains__(self, key):
        cdef uint64_t h = 0
        hash_key(key, self.f.seed, &h)
        return filter_probe(&self.f, h)

    def test_and_add(self, key):
        """Add a key. Returns True if it was probably added before.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.test_and_add(b"ada"), seen.test_and_add(b"ada")
        (False, True)
        """
        return not self._add_one(key)

    def add_many(self, keys):
        """Add every key of an iterable. Other threads run while it hashes and sets bits.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.add_many([b"ada", b"bob"])
        """
        cdef KeyHasher hasher = KeyHasher(keys, self.f.seed)
        cdef Py_ssize_t n = hasher.take()
        while n:
            with nogil:
                hasher.hash_taken(n)
                self._add_hashes(hasher.hashes, <size_t>n)
            n = hasher.take()

    def test_many(self, keys):
        """Return a list of bool, one per key in order: whether it was probably added.

        >>> lsmkv.BlockedBloom(1000).test_many([b"ada", b"bob"])
        [False, False]
        """
        cdef KeyHasher hasher = KeyHasher(keys, self.f.seed)
        cdef uint8_t* verdicts = <uint8_t*>malloc(HASH_CHUNK)
        cdef Py_ssize_t n, i
        cdef list out = []
        if verdicts == NULL:
            raise MemoryError("no memory to test a batch of keys")
        try:
            n = hasher.take()
            while n:
                with nogil:
                    hasher.hash_taken(n)
                    filter_probe_many(&self.f, hasher.hashes, <size_t>n, verdicts)
                for i in range(n):
                    out.append(True if verdicts[i] else False)
                n = hasher.take()
        finally:
            free(verdicts)
        return out

    def merge(self, BlockedBloom other not None):
        """Add all keys of `other`. Raises `ValueError` unless both have the same size, bits per key and seed.

        >>> seen, more = lsmkv.BlockedBloom(1000), lsmkv.BlockedBloom(1000)
        >>> more.add(b"ada")
        >>> seen.merge(more)
        """
        cdef uint64_t i, words = self.f.n_blocks * 8
        cdef uint64_t* mine = <uint64_t*>self.bits
        cdef const uint64_t* theirs = <const uint64_t*>other.bits
        require_same(self.f.seed, other.f.seed, "seed")
        require_same(self.f.millibits, other.f.millibits, "bits_per_key, in thousandths")
        require_same(self.f.n_blocks, other.f.n_blocks, "n_blocks")
        require_same(self.f.k, other.f.k, "k")
        if other is self:
            return
        with nogil:
            pthread_mutex_lock(&self.mutex)
            for i in range(words):
                mine[i] |= theirs[i]
            self.f.n_keys = <uint64_t>(filter_estimate_keys(&self.f) + 0.5)
            pthread_mutex_unlock(&self.mutex)

    def clear(self):
        """Remove every key.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.clear()
        """
        with nogil:
            pthread_mutex_lock(&self.mutex)
            memset(self.bits, 0, self.f.n_blocks * FILTER_BLOCK_BYTES)
            self.f.n_keys = 0
            pthread_mutex_unlock(&self.mutex)

    def copy(self):
        """Return an independent filter with the same keys.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.copy() == seen
        True
        """
        return BlockedBloom.from_bytes(self.to_bytes())

    def to_bytes(self):
        """Return the header and the bits. docs/format.md describes them.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> len(seen.to_bytes()) - seen.nbytes
        64
        """
        cdef size_t n = self.f.n_blocks * FILTER_BLOCK_BYTES
        cdef bytes blob = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(n + FILTER_HEADER_SIZE))
        cdef char* out = PyBytes_AS_STRING(blob)
        cdef FilterC described
        with nogil:
            pthread_mutex_lock(&self.mutex)
            memcpy(out + FILTER_HEADER_SIZE, self.bits, n)
            described = self.f
            pthread_mutex_unlock(&self.mutex)
            described.bits = <const uint8_t*>(out + FILTER_HEADER_SIZE)
            filter_encode_header(&described, out)
        return blob

    @staticmethod
    def from_bytes(const unsigned char[::1] data not None):
        """Return the filter that `to_bytes` wrote. Raises `CorruptionError` if the bytes are damaged or incomplete.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> lsmkv.BlockedBloom.from_bytes(seen.to_bytes()) == seen
        True
        """
        cdef size_t n = <size_t>data.shape[0]
        cdef FilterC f
        cdef BlockedBloom made
        if n <= FILTER_HEADER_SIZE:
            raise CorruptionError(f"not a filter: {n} bytes are too few")
        filter_decode(
            <const char*>&data[0], FILTER_HEADER_SIZE, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE, &f
        )
        if not f.usable or f.millibits == 0:
            raise CorruptionError(f"not a filter: {filter_problem_text(f.problem or FILTER_BAD_GEOMETRY).decode()}")
        made = BlockedBloom.__new__(BlockedBloom)
        made.f = f
        made._own(f.n_blocks)
        made.made = True
        memcpy(made.bits, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE)
        return made

    def __eq__(self, other):
        if not isinstance(other, BlockedBloom):
            return NotImplemented
        cdef BlockedBloom o = other
        return (
            self.f.seed == o.f.seed and self.f.millibits == o.f.millibits and self.f.k == o.f.k
            and self.f.n_blocks == o.f.n_blocks
            and memcmp(self.bits, o.bits, self.f.n_blocks * FILTER_BLOCK_BYTES) == 0
        )

    __hash__ = None

    def __repr__(self):
        return (f"<BlockedBloom capacity={self.capacity} bits_per_key={self.bits_per_key:g} k={self.k} "
                f"count={self.count} fill={self.fill_ratio:.3f}>")

    def __sizeof__(self):
        return sizeof(BlockedBloom) + self.f.n_blocks * FILTER_BLOCK_BYTES

    @property
    def capacity(self):
        """The number of keys at the designed rate: the requested number, rounded up to whole blocks.

        >>> lsmkv.BlockedBloom(1000).capacity >= 1000
        True
        """
        return self.f.n_blocks * 512000 // self.f.millibits

    @property
    def bits_per_key(self):
        """The bits per key at capacity.

        >>> lsmkv.BlockedBloom(1000, bits_per_key=12).bits_per_key
        12.0
        """
        return self.f.millibits / 1000.0

    @property
    def k(self):
        """The bits set per key.

        >>> lsmkv.BlockedBloom(1000, bits_per_key=10).k
        6
        """
        return self.f.k

    @property
    def n_blocks(self):
        """The number of 64-byte blocks.

        >>> lsmkv.BlockedBloom(1024, bits_per_key=10).n_blocks
        20
        """
        return self.f.n_blocks

    @property
    def nbytes(self):
        """The size of the bits in bytes.

        >>> lsmkv.BlockedBloom(1024, bits_per_key=10).nbytes
        1280
        """
        return self.f.n_blocks * FILTER_BLOCK_BYTES

    @property
    def seed(self):
        """The seed of the hash.

        >>> lsmkv.BlockedBloom(1000, seed=7).seed
        7
        """
        return self.f.seed

    @property
    def count(self):
        """The number of added keys that set at least one new bit; after a merge, an estimate.

        >>> lsmkv.BlockedBloom(1000).count
        0
        """
        return self.f.n_keys

    @property
    def fill_ratio(self):
        """The share of the bits that are set.

        >>> lsmkv.BlockedBloom(1000).fill_ratio
        0.0
        """
        cdef double ratio
        with nogil:
            ratio = filter_fill_ratio(&self.f)
        return ratio

    @property
    def approximate_count(self):
        """The number of distinct keys, estimated from the bits.

        >>> lsmkv.BlockedBloom(1000).approximate_count
        0
        """
        cdef double estimate
        with nogil:
            estimate = filter_estimate_keys(&self.f)
        return round(estimate)

    @property
    def designed_fpr(self):
        """The false positive rate at capacity.

        >>> lsmkv.BlockedBloom(1000, 0.01).designed_fpr <= 0.0101
        True
        """
        return filter_curve(self.bits_per_key, self.f.k)

    @property
    def expected_fpr(self):
        """The false positive rate of the bits as they are now.

        >>> lsmkv.BlockedBloom(1000).expected_fpr
        0.0
        """
        cdef double rate
        with nogil:
            rate = filter_current_fpr(&self.f)
        return rate

    @property
    def saturated(self):
        """Whether it holds more keys than it was sized for.

        >>> lsmkv.BlockedBloom(1000).saturated
        False
        """
        return self.approximate_count > self.capacity


def simd():
    """Return the probe in use: "avx2" or "portable"."""
    return "avx2" if lsm_filter_simd else "portable"


def use_simd(bint on):
    """Turn the SIMD probes of BlockedBloom on (where the CPU has them) or off. Both give the same answers."""
    lsm_filter_choose(on)
    filter_choose(on)


def probe_all(list filters not None, const unsigned char[::1] key not None):
    """Return whether each filter may hold the key, probed as a lookup probes its tables; None always may.

    At most 32 filters, all of one seed.
    """
    cdef FilterProbe probes[32]
    cdef BlockedBloom bloom
    cdef uint64_t h = 0
    cdef size_t n = <size_t>key.shape[0]
    cdef uint32_t maybe
    cdef int i
    if len(filters) > 32 or len({one.seed for one in filters if one is not None}) > 1:
        raise ValueError("at most 32 filters, all of one seed")
    for i in range(len(filters)):
        memset(&probes[i], 0, sizeof(FilterProbe))
        if filters[i] is not None:
            bloom = filters[i]
            h = xxh3(<const char*>&key[0] if n else _EMPTY, n, bloom.f.seed)
            probes[i].k = bloom.f.k
            probes[i].line = bloom.f.bits + lsm_filter_block(h, bloom.f.n_blocks) * FILTER_BLOCK_BYTES
    maybe = lsm_filter_probe(probes, len(filters), lsm_filter_remix(h))
    return [bool((maybe >> i) & 1) for i in range(len(filters))]
