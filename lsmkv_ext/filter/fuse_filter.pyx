"""A filter of a fixed set of keys."""

import operator

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.filter.format cimport (
    FILTER_BAD_GEOMETRY,
    FILTER_HEADER_SIZE,
    filter_decode,
    filter_encode_header,
    filter_problem_text,
)
from lsmkv_ext.filter.fuse cimport (
    FUSE_BUILT,
    FUSE_MAX_WIDTH,
    FUSE_MIN_WIDTH,
    FUSE_NO_MEMORY,
    FuseGeometry,
    fuse_build,
    fuse_fpr,
    fuse_geometry,
    lsm_fuse_bytes,
    lsm_fuse_slots,
)
from lsmkv_ext.filter.kernel cimport FilterC, filter_probe, filter_probe_many
from lsmkv_ext.filter.key_filter cimport KeyFilter, fingerprint
from lsmkv_ext.filter.key_hasher cimport KeyHasher
from lsmkv_ext.port.alloc cimport lsm_free
from lsmkv_ext.port.growable cimport array_reserve
from lsmkv_ext.port.pages cimport lsm_lines_alloc, lsm_pages_free

from lsmkv_ext.errors import CorruptionError, Error
from lsmkv_ext.filter.family_format import expand
from lsmkv_ext.filter.parameters import checked_seed

cdef enum:
    ATTEMPTS = 50                 # each succeeds with a probability of 9 in 10 or more

cdef size_t LARGEST = <size_t>1 << 39     # keys


cdef class _Hashes:
    """The hashes of all keys, while a filter is built."""

    cdef uint64_t* items          # owned
    cdef size_t capacity
    cdef size_t n

    def __dealloc__(self):
        lsm_free(self.items)

    cdef int fill(self, keys, uint64_t seed) except -1:
        cdef KeyHasher hasher = KeyHasher(keys, seed)
        cdef Py_ssize_t n = hasher.take()
        cdef bint room = True
        while n:
            with nogil:
                if hasher.hash_taken(n):
                    room = self.n + n < LARGEST and self._append(hasher.hashes, <size_t>n) == 0
            hasher.check()
            if not room:
                raise MemoryError("no memory for the hashes of the keys")
            n = hasher.take()
        return 0

    cdef int _append(self, const uint64_t* hashes, size_t n) noexcept nogil:
        if array_reserve(<void**>&self.items, &self.capacity, self.n + n, sizeof(uint64_t)) != 0:
            return -1
        memcpy(self.items + self.n, hashes, n * sizeof(uint64_t))
        self.n += n
        return 0


cdef class FuseFilter(KeyFilter):
    """FuseFilter(keys, fingerprint_bits=8, *, seed=0)\n--\n\n\
    A filter of a fixed set of keys: a binary fuse filter. No key can be added later.

    It takes 9 bits per key at a false positive rate of 0.39 %, where a `BlockedBloom` takes 12. The rate is
    2 ** -fingerprint_bits; fingerprints have 4 to 16 bits. `keys` is an iterable or a column, as in
    `BlockedBloom.add_many`; repeated keys count once. While it is built it takes about 30 bytes of memory per key. Small sets
    need more bits per key. Any number of threads may use it.

    Raises `ValueError` or `TypeError` for a wrong parameter or key, and `MemoryError`.

    >>> users = lsmkv.FuseFilter([b"ada", b"grace"])
    >>> b"ada" in users
    True
    """

    cdef FilterC f
    cdef uint8_t* bits            # owned; f.bits is the same address
    cdef size_t allocated

    def __init__(self, keys, fingerprint_bits=8, *, seed=0):
        try:
            width = operator.index(fingerprint_bits)
        except TypeError:
            raise TypeError(f"fingerprint_bits must be an int, not {type(fingerprint_bits).__name__}") from None
        if not FUSE_MIN_WIDTH <= width <= FUSE_MAX_WIDTH:
            raise ValueError(f"fingerprint_bits must be from {FUSE_MIN_WIDTH} to {FUSE_MAX_WIDTH}, not {width}")
        checked_seed(seed)
        cdef _Hashes hashes = _Hashes()
        hashes.fill(keys, seed)
        if self.bits != NULL:
            raise TypeError("a FuseFilter is made once")
        self.hash_seed = seed
        self._build(hashes, width)

    def __dealloc__(self):
        lsm_pages_free(self.bits, self.allocated)

    cdef int _allocate(self, size_t n) except -1:
        self.bits = <uint8_t*>lsm_lines_alloc(n)
        if self.bits == NULL:
            raise MemoryError(f"no memory for a filter of {n} bytes")
        self.allocated = n
        return 0

    cdef int _build(self, _Hashes hashes, uint32_t width) except -1:
        cdef FuseGeometry g
        cdef size_t n = hashes.n
        cdef int result
        memset(&g, 0, sizeof(FuseGeometry))
        g.width = <uint8_t>width
        fuse_geometry(n, width, &g)
        self._allocate(lsm_fuse_bytes(&g))
        with nogil:
            result = fuse_build(hashes.items, &n, ATTEMPTS, &g, self.bits)
        if result == FUSE_NO_MEMORY:
            raise MemoryError("no memory to build a filter")
        if result != FUSE_BUILT:
            raise Error("no filter was found: try another seed")
        memset(&self.f, 0, sizeof(FilterC))
        self.f.bits = self.bits
        self.f.n_blocks = lsm_fuse_slots(&g)
        self.f.n_keys = n
        self.f.seed = self.hash_seed
        self.f.k = width
        self.f.fuse = g
        self.f.usable = 1
        self.f.millibits = <uint32_t>min(lsm_fuse_bytes(&g) * 8000 // max(n, <size_t>1), <uint64_t>100000)
        return 0

    cdef int _check(self) except -1:
        if not self.f.usable:
            raise ValueError("this FuseFilter was not initialized")
        return 0

    cdef bint _test_hash(self, uint64_t h) except -1:
        self._check()
        return filter_probe(&self.f, h)

    cdef int _test_hashes(self, const uint64_t* hashes, size_t n, uint8_t* out) except -1 nogil:
        filter_probe_many(&self.f, hashes, n, out)
        return 0

    # --- bytes -----------------------------------------------------------------------------------------------------

    def _blob(self):
        cdef bytearray head = bytearray(FILTER_HEADER_SIZE)
        self._check()
        filter_encode_header(&self.f, head)
        return bytes(head) + (<char*>self.bits)[:self.nbytes]

    @staticmethod
    def from_bytes(data):
        """Return the filter that `to_bytes` wrote. Raises `CorruptionError` if the bytes are damaged or incomplete.

        >>> users = lsmkv.FuseFilter([b"ada", b"grace"])
        >>> lsmkv.FuseFilter.from_bytes(users.to_bytes()) == users
        True
        """
        return _from_blob(expand(data))

    def __eq__(self, other):
        if not isinstance(other, FuseFilter):
            return NotImplemented
        cdef FuseFilter o = other
        return self._parameters() == o._parameters() and memcmp(self.bits, o.bits, self.nbytes) == 0

    __hash__ = None

    def _parameters(self):
        self._check()
        return {
            "fingerprint_bits": self.f.k, "slots": self.f.n_blocks, "attempt": self.f.fuse.attempt,
            "seed": self.hash_seed,
        }

    def _fingerprint(self):
        self._check()
        return f"{fingerprint(self.bits, <size_t>lsm_fuse_bytes(&self.f.fuse)):016x}"

    def __repr__(self):
        return f"<FuseFilter count={self.count} fingerprint_bits={self.fingerprint_bits} bits_per_key={self.bits_per_key:.2f}>"

    def __sizeof__(self):
        return sizeof(FuseFilter) + self.allocated

    # --- figures ---------------------------------------------------------------------------------------------------

    @property
    def fingerprint_bits(self):
        """The bits of a fingerprint.

        >>> lsmkv.FuseFilter([b"ada"]).fingerprint_bits
        8
        """
        return self.f.k

    @property
    def count(self):
        """The number of different keys.

        >>> lsmkv.FuseFilter([b"ada", b"ada"]).count
        1
        """
        return self.f.n_keys

    @property
    def approximate_count(self):
        """The same as `count`.

        >>> lsmkv.FuseFilter([b"ada"]).approximate_count
        1
        """
        return self.f.n_keys

    @property
    def capacity(self):
        """The same as `count`: no key can be added.

        >>> lsmkv.FuseFilter([b"ada"]).capacity
        1
        """
        return self.f.n_keys

    @property
    def nbytes(self):
        """The size of the fingerprints in bytes.

        >>> lsmkv.FuseFilter([b"ada"]).nbytes % 64
        0
        """
        return lsm_fuse_bytes(&self.f.fuse) if self.f.usable else 0

    @property
    def bits_per_key(self):
        """The bits that a key takes; 0 without keys.

        >>> lsmkv.FuseFilter([b"%d" % n for n in range(100_000)]).bits_per_key < 9.6
        True
        """
        return self.nbytes * 8 / <double>self.f.n_keys if self.f.n_keys else 0.0

    @property
    def fill_ratio(self):
        """The share of the slots that a key was assigned to.

        >>> lsmkv.FuseFilter([b"%d" % n for n in range(100_000)]).fill_ratio > 0.8
        True
        """
        return <double>self.f.n_keys / <double>max(self.f.n_blocks, <uint64_t>1)

    @property
    def designed_fpr(self):
        """The false positive rate.

        >>> lsmkv.FuseFilter([b"ada"]).designed_fpr
        0.00390625
        """
        return fuse_fpr(self.f.k)

    @property
    def expected_fpr(self):
        """The same as `designed_fpr`.

        >>> lsmkv.FuseFilter([b"ada"]).expected_fpr
        0.00390625
        """
        return fuse_fpr(self.f.k)

    @property
    def saturated(self):
        """False: no key can be added.

        >>> lsmkv.FuseFilter([b"ada"]).saturated
        False
        """
        return False


cdef FuseFilter _from_blob(const unsigned char[::1] data):
    cdef size_t n = <size_t>data.shape[0]
    cdef FilterC f
    cdef FuseFilter made
    if n <= FILTER_HEADER_SIZE:
        raise CorruptionError(f"not a filter: {n} bytes are too few")
    filter_decode(<const char*>&data[0], FILTER_HEADER_SIZE, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE, &f)
    if not f.usable or not f.fuse.width:
        raise CorruptionError(f"not a filter: {filter_problem_text(f.problem or FILTER_BAD_GEOMETRY).decode()}")
    made = FuseFilter.__new__(FuseFilter)
    made._allocate(n - FILTER_HEADER_SIZE)
    memcpy(made.bits, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE)
    f.bits = made.bits
    made.f = f
    made.hash_seed = f.seed
    return made
