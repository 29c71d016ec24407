"""The public Bloom filter."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.filter.concurrent_bits cimport (
    bits_add,
    bits_add_many,
    bits_clear,
    bits_copy,
    bits_free,
    bits_hold,
    bits_init,
    bits_or,
)
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
    filter_choose,
    filter_fill_ratio,
    filter_probe,
    filter_probe_many,
    lsm_filter_block,
    lsm_filter_choose,
    lsm_filter_probe,
    lsm_filter_remix,
    lsm_filter_simd,
)
from lsmkv_ext.filter.key_filter cimport fingerprint
from lsmkv_ext.filter.key_hasher cimport hash_key
from lsmkv_ext.filter.resident cimport lsm_madvise_small, lsm_populate
from lsmkv_ext.port.atomics cimport lsm_fetch_add64, lsm_load64, lsm_store64
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.handle cimport fork_count
from lsmkv_ext.port.pages cimport lsm_lines_alloc, lsm_map_pages, lsm_pages_free

from lsmkv_ext.errors import ClosedError, CorruptionError, Error, ForkError
from lsmkv_ext.filter.family_format import expand
from lsmkv_ext.filter.parameters import checked_bits, checked_capacity, checked_seed
from lsmkv_ext.filter.shared_file import BITS_OFFSET as _BITS_OFFSET, COUNT_OFFSET as _COUNT_OFFSET, SharedFile

cdef const char* _EMPTY = ""

cdef enum:
    OWN_PAGES = 256 << 10         # from so many bytes on, lsm_lines_alloc takes pages (port/pages)


cdef int require_same(uint64_t mine, uint64_t theirs, str name) except -1:
    if mine != theirs:
        raise ValueError(f"cannot merge filters of different {name}: {mine} and {theirs}")
    return 0


cdef class BlockedBloom(GrowingFilter):
    """BlockedBloom(capacity, fpr=None, *, bits_per_key=None, seed=0, huge_pages=True, prefault=False)\n--\n\n\
    A Bloom filter: `in` is True for every key that was added, and rarely for another.

    It is sized for `capacity` keys and either a false positive rate (default 1 %) or bits per key. Filters with equal
    parameters and seeds can be merged. Any number of threads may use it; they add at the same time.

    From 2 MiB on it asks for huge pages, unless `huge_pages` is False. `prefault` makes its memory resident at once, so that no
    later call waits for page faults.

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
        self.n_added = &self.f.n_keys
        self.made = False
        self.users = 0
        self._own(1, 1, True, False)         # one valid, empty block until __init__ has run
        self.f.millibits = 1000

    def __init__(self, capacity, fpr=None, *, bits_per_key=None, seed=0, huge_pages=True, prefault=False):
        checked_capacity(capacity)
        bits_per_key = checked_bits(fpr, bits_per_key)
        cdef uint32_t millibits = filter_millibits(bits_per_key)
        cdef uint64_t hash_seed = checked_seed(seed)
        cdef bint huge = huge_pages, resident = prefault
        if self.made:
            raise TypeError("a BlockedBloom is made once")
        self._own(filter_blocks_for(capacity, millibits), filter_k_for(millibits), huge, resident)
        self.f.millibits = millibits
        self.f.seed = self.hash_seed = hash_seed
        self.made = True

    def __dealloc__(self):
        self._release()

    # --- memory ----------------------------------------------------------------------------------------------------

    cdef int _own(self, uint64_t n_blocks, uint32_t k, bint huge_pages, bint prefault) except -1:
        """Replaces the bits by n_blocks empty blocks."""
        cdef uint64_t limit = <uint64_t>1 << 57
        cdef size_t n = n_blocks * FILTER_BLOCK_BYTES
        cdef uint8_t* bits = NULL
        if 0 < n_blocks < limit:
            bits = <uint8_t*>(lsm_lines_alloc(n) if huge_pages or n < OWN_PAGES else lsm_map_pages(n))
        cdef BitsC to_change
        if bits == NULL or bits_init(&to_change, bits, n_blocks, k, False) != 0:
            lsm_pages_free(bits, n)
            raise MemoryError(f"no memory for a filter of {n_blocks} blocks of 64 bytes")
        if not huge_pages and n >= OWN_PAGES:
            lsm_madvise_small(bits, n)
        if prefault:
            with nogil:
                lsm_populate(bits, n, n >= OWN_PAGES)
        self._release()
        self.bits = bits
        self.to_change = to_change
        self.f.k = k
        self.n_bytes = n
        self.f.bits = bits
        self.f.n_blocks = n_blocks
        self.f.usable = 1
        return 0

    cdef void _release(self) noexcept:
        """Frees the bits, or leaves the mapping that they are in."""
        if self.mapped:
            PyBuffer_Release(&self.mapping)
        else:
            lsm_pages_free(self.bits, self.n_bytes)
        bits_free(&self.to_change)
        self.bits = NULL
        self.f.bits = NULL
        self.f.usable = 0
        self.n_added = &self.f.n_keys
        self.mapped = False

    cdef int _check(self) except -1:
        if self.file is not None and (self.bits == NULL or self.born != fork_count):
            return self._refuse()
        return 0

    cdef int _refuse(self) except -1:
        if self.born != fork_count:
            raise ForkError("this filter was opened before a fork: open it again in the child")
        raise ClosedError("this filter is closed")

    cdef int _begin(self) except -1:
        self._check()
        self.users += 1
        return 0

    cdef void _end(self) noexcept:
        self.users -= 1

    @staticmethod
    def open_shared(path, capacity=None, fpr=None, *, bits_per_key=None, seed=None, prefault=False, recover=False):
        """Open the filter in the file `path`, which any number of processes may have open: all add to the same bits.

        A missing file is created if `capacity` is given. For an existing one the parameters may be left out, and must
        match if they are given; a file never grows. An added key is visible to all processes at once and survives
        their end, also by `kill -9`. It survives a power cut after `flush`, or after the last process has closed the
        filter. A file that was open when the machine went down may lack keys: it is refused, unless `recover` is true.

        Raises `CorruptionError` for a damaged file, `ValueError` for other parameters, and `IOError` if the disk fails.

        >>> with lsmkv.BlockedBloom.open_shared("seen.filter", 1000) as seen:
        ...     seen.add(b"ada")
        >>> with lsmkv.BlockedBloom.open_shared("seen.filter") as seen:
        ...     b"ada" in seen
        True
        """
        cdef BlockedBloom made = BlockedBloom.__new__(BlockedBloom)
        cdef uint32_t millibits = 0
        if bits_per_key is not None or fpr is not None or capacity is not None:
            millibits = filter_millibits(checked_bits(fpr, bits_per_key))
        cdef uint64_t n_blocks = filter_blocks_for(checked_capacity(capacity), millibits) if capacity is not None else 0
        given = capacity is not None or bits_per_key is not None or fpr is not None
        cdef FilterC f
        file = SharedFile(
            path, millibits if given else None, n_blocks if capacity is not None else None, filter_k_for(millibits),
            None if seed is None else checked_seed(seed), bool(recover),
        )
        try:
            memset(&f, 0, sizeof(FilterC))
            f.k, f.millibits, f.n_blocks, f.seed = file.k, file.millibits, file.n_blocks, file.seed
            if prefault:
                file.prefault()
            PyObject_GetBuffer(file.mapping, &made.mapping, PyBUF_WRITABLE)
        except BaseException:
            file.close()
            raise
        made._release()
        made.file = file
        made.mapped = True
        made.born = fork_count
        made.bits = <uint8_t*>made.mapping.buf + <size_t>_BITS_OFFSET
        made.n_bytes = f.n_blocks * FILTER_BLOCK_BYTES
        bits_init(&made.to_change, made.bits, f.n_blocks, f.k, True)
        made.n_added = <uint64_t*>(<uint8_t*>made.mapping.buf + <size_t>_COUNT_OFFSET)
        f.bits = made.bits
        f.usable = 1
        made.f = f
        made.hash_seed = f.seed
        made.made = True
        return made

    def flush(self):
        """Write the bits of a shared filter to the disk: keys added before survive a power cut. Others have nothing to write.

        Raises `IOError` if the disk fails.

        >>> with lsmkv.BlockedBloom.open_shared("seen.filter", 1000) as seen:
        ...     seen.flush()
        """
        self._begin()
        try:
            if self.file is not None:
                self.file.flush()
        finally:
            self._end()

    def close(self):
        """Close a shared filter. The last process to close it writes the bits to the disk and seals them with a checksum.

        Any other filter stays as it is. Raises `Error` while a call is running, and `IOError` if the disk fails.

        >>> seen = lsmkv.BlockedBloom.open_shared("seen.filter", 1000)
        >>> seen.close()
        """
        if self.file is None or self.bits == NULL:
            return
        if self.users:
            raise Error("a call of this filter is running")
        self._release()
        self.file.close()

    def __enter__(self):
        self._check()
        return self

    def __exit__(self, exc_type, exc, tb):
        self.close()

    # --- keys ------------------------------------------------------------------------------------------------------

    cdef bint add_hash(self, uint64_t h) noexcept nogil:
        """Whether it set a new bit."""
        cdef bint fresh = bits_add(&self.to_change, h)
        if fresh:
            lsm_fetch_add64(self.n_added, 1)
        return fresh

    cdef size_t add_hashes(self, const uint64_t* hashes, size_t n) noexcept nogil:
        cdef size_t fresh = bits_add_many(&self.to_change, hashes, n)
        if fresh:
            lsm_fetch_add64(self.n_added, fresh)
        return fresh

    cdef bint _add_hash(self, uint64_t h) except -1:
        self._check()
        return self.add_hash(h)

    cdef bint _test_hash(self, uint64_t h) except -1:
        self._check()
        return filter_probe(&self.f, h)

    cdef int _add_hashes(self, const uint64_t* hashes, size_t n) except -1 nogil:
        self.add_hashes(hashes, n)
        return 0

    cdef int _test_hashes(self, const uint64_t* hashes, size_t n, uint8_t* out) except -1 nogil:
        filter_probe_many(&self.f, hashes, n, out)
        return 0

    def __contains__(self, key):
        cdef uint64_t h = 0
        hash_key(key, self.hash_seed, &h)
        if self.file is not None:
            self._check()
        return filter_probe(&self.f, h)

    def test_and_add(self, key):
        """Add a key. Returns True if it was probably added before.

        Of several threads that add a new key, one gets False. Of several processes, several may.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.test_and_add(b"ada"), seen.test_and_add(b"ada")
        (False, True)
        """
        cdef uint64_t h = 0
        hash_key(key, self.hash_seed, &h)
        return not self._add_hash(h)

    def merge(self, BlockedBloom other not None):
        """Add all keys of `other`. Raises `ValueError` unless both have the same size, bits per key and seed.

        >>> seen, more = lsmkv.BlockedBloom(1000), lsmkv.BlockedBloom(1000)
        >>> more.add(b"ada")
        >>> seen.merge(more)
        """
        require_same(self.f.seed, other.f.seed, "seed")
        require_same(self.f.millibits, other.f.millibits, "bits_per_key, in thousandths")
        require_same(self.f.n_blocks, other.f.n_blocks, "n_blocks")
        require_same(self.f.k, other.f.k, "k")
        if other is self:
            return
        other._begin()
        try:
            self._begin()
            try:
                with nogil:
                    bits_or(&self.to_change, &other.to_change)
                    lsm_store64(self.n_added, <uint64_t>(filter_estimate_keys(&self.f) + 0.5))
            finally:
                self._end()
        finally:
            other._end()

    def clear(self):
        """Remove every key. A key that is added meanwhile may be removed too.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.clear()
        """
        self._begin()
        with nogil:
            bits_clear(&self.to_change)
            lsm_store64(self.n_added, 0)
        self._end()

    # --- bytes -----------------------------------------------------------------------------------------------------

    def _blob(self):
        cdef bytes blob = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(self.n_bytes + FILTER_HEADER_SIZE))
        cdef char* out = PyBytes_AS_STRING(blob)
        cdef FilterC described
        self._begin()
        with nogil:
            bits_copy(&self.to_change, out + FILTER_HEADER_SIZE)
            described = self.f
            described.n_keys = lsm_load64(self.n_added)
            described.bits = <const uint8_t*>(out + FILTER_HEADER_SIZE)
            filter_encode_header(&described, out)
        self._end()
        return blob

    @staticmethod
    def from_bytes(data):
        """Return the filter that `to_bytes` wrote. Raises `CorruptionError` if the bytes are damaged or incomplete.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> lsmkv.BlockedBloom.from_bytes(seen.to_bytes()) == seen
        True
        """
        return _from_blob(expand(data))

    def _parameters(self):
        return {"bits_per_key": self.bits_per_key, "k": self.k, "n_blocks": self.n_blocks, "seed": self.seed}

    def _fingerprint(self):
        cdef uint64_t found
        self._begin()
        with nogil:
            found = fingerprint(self.bits, self.n_bytes)
        self._end()
        return f"{found:016x}"

    def __eq__(self, other):
        if not isinstance(other, BlockedBloom):
            return NotImplemented
        cdef BlockedBloom o = other
        self._check()
        o._check()
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
        return sizeof(BlockedBloom) + (0 if self.file is not None else self.n_bytes)

    @property
    def path(self):
        """The path of a shared filter; None for any other.

        >>> lsmkv.BlockedBloom(1000).path is None
        True
        """
        return None if self.file is None else self.file.path

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
    def count(self):
        """The number of added keys that set at least one new bit; after a merge, an estimate.

        >>> lsmkv.BlockedBloom(1000).count
        0
        """
        self._check()
        return lsm_load64(self.n_added)

    @property
    def fill_ratio(self):
        """The share of the bits that are set.

        >>> lsmkv.BlockedBloom(1000).fill_ratio
        0.0
        """
        cdef double ratio
        self._begin()
        with nogil:
            ratio = filter_fill_ratio(&self.f)
        self._end()
        return ratio

    @property
    def approximate_count(self):
        """The number of distinct keys, estimated from the bits.

        >>> lsmkv.BlockedBloom(1000).approximate_count
        0
        """
        cdef double estimate
        self._begin()
        with nogil:
            estimate = filter_estimate_keys(&self.f)
        self._end()
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
        self._begin()
        with nogil:
            rate = filter_current_fpr(&self.f)
        self._end()
        return rate

    @property
    def saturated(self):
        """Whether it holds more keys than it was sized for.

        >>> lsmkv.BlockedBloom(1000).saturated
        False
        """
        return self.approximate_count > self.capacity


cdef BlockedBloom _from_blob(const unsigned char[::1] data):
    cdef size_t n = <size_t>data.shape[0]
    cdef FilterC f
    cdef BlockedBloom made
    if n <= FILTER_HEADER_SIZE:
        raise CorruptionError(f"not a filter: {n} bytes are too few")
    filter_decode(<const char*>&data[0], FILTER_HEADER_SIZE, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE, &f)
    if not f.usable or f.millibits == 0 or f.fuse.width:
        raise CorruptionError(f"not a filter: {filter_problem_text(f.problem or FILTER_BAD_GEOMETRY).decode()}")
    made = BlockedBloom.__new__(BlockedBloom)
    made._own(f.n_blocks, f.k, True, False)
    memcpy(made.bits, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE)
    f.bits = made.bits
    made.f = f
    made.hash_seed = f.seed
    made.made = True
    return made


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


def hold_bits(BlockedBloom bloom not None, unsigned char[::1] signals not None):
    """For tests: hold the locks of the bits, and set signals[0]. Return True as soon as another thread waits for one of them,
    False if it sets signals[1] before."""
    if signals.shape[0] != 2:
        raise ValueError("two signals")
    cdef uint8_t* held = &signals[0]
    cdef const uint8_t* ended = &signals[1]
    cdef int waits
    with nogil:
        waits = bits_hold(&bloom.to_change, held, ended)
    if waits < 0:
        raise NotImplementedError("this C library does not tell who waits for a mutex")
    return bool(waits)
