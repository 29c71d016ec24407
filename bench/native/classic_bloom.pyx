"""The two filters of the data plane and a classic Bloom filter, each with a loop that times its probes."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext.filter.curve cimport filter_k_for
from lsmkv_ext.filter.fuse cimport (
    FUSE_ATTEMPTS,
    FUSE_BUILT,
    fuse_build,
    fuse_geometry,
    lsm_fuse_bytes,
    lsm_fuse_slots,
)
from lsmkv_ext.filter.kernel cimport (
    FILTER_BLOCK_BYTES,
    FilterC,
    filter_add_many,
    filter_count_missing,
    filter_probe,
    filter_probe_many,
)

include "clock.pxi"
include "random.pxi"

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** p, size_t alignment, size_t n)

cdef extern from "<sys/mman.h>" nogil:
    int MADV_HUGEPAGE
    int madvise(void* p, size_t n, int advice)

cdef enum:
    HUGE_PAGE = 1 << 21


cdef class Probes:
    """n random hashes, generated outside the measured time."""

    cdef uint64_t* hashes
    cdef uint8_t* verdicts
    cdef readonly size_t n

    def __cinit__(self, size_t n, uint64_t seed):
        cdef size_t i
        self.n = n
        self.hashes = <uint64_t*>malloc(n * sizeof(uint64_t))
        self.verdicts = <uint8_t*>malloc(n)
        if self.hashes == NULL or self.verdicts == NULL:
            raise MemoryError("cannot allocate the hashes")
        memset(self.verdicts, 0, n)
        for i in range(n):
            self.hashes[i] = next_random(&seed)

    def __dealloc__(self):
        free(self.hashes)
        free(self.verdicts)

    def positives(self):
        cdef size_t i, total = 0
        for i in range(self.n):
            total += self.verdicts[i]
        return total


cdef uint8_t* _bits(size_t n) except NULL:
    cdef void* p = NULL
    if posix_memalign(&p, HUGE_PAGE, (n + HUGE_PAGE - 1) & ~<size_t>(HUGE_PAGE - 1)) != 0:
        raise MemoryError("cannot allocate the filter")
    madvise(p, n, MADV_HUGEPAGE)
    memset(p, 0, n)
    return <uint8_t*>p


cdef class BlockedFilter:
    """The filter of the data plane, full of random hashes at `millibits` / 1000 bits per key."""

    cdef FilterC f
    cdef uint8_t* bits
    cdef readonly double add_ns          # per key
    cdef readonly double verify_ns       # per key: the check of a new filter

    def __cinit__(self, size_t nbytes, uint32_t millibits, uint64_t seed):
        self.bits = _bits(nbytes)
        memset(&self.f, 0, sizeof(FilterC))
        self.f.bits = self.bits
        self.f.n_blocks = nbytes // FILTER_BLOCK_BYTES
        self.f.k = filter_k_for(millibits)
        self.f.usable = 1
        self._fill(nbytes * 8000 // millibits, seed)

    def _fill(self, uint64_t n_keys, uint64_t seed):
        cdef uint64_t chunk[4096]
        cdef uint64_t left = n_keys, start, spent = 0, verified = 0, missing = 0
        cdef size_t i, m
        with nogil:
            while left:
                m = <size_t>min(left, <uint64_t>4096)
                for i in range(m):
                    chunk[i] = next_random(&seed)
                start = lsmkv_thread_ns()
                filter_add_many(self.bits, self.f.n_blocks, self.f.k, chunk, m)
                spent += lsmkv_thread_ns() - start
                start = lsmkv_thread_ns()
                missing += filter_count_missing(&self.f, chunk, m)
                verified += lsmkv_thread_ns() - start
                left -= m
        if missing:
            raise AssertionError(f"the filter lost {missing} keys")
        self.add_ns = <double>spent / n_keys
        self.verify_ns = <double>verified / n_keys

    def __dealloc__(self):
        free(self.bits)

    def batch_ns(self, Probes probes not None):
        """Nanoseconds per probe of a prefetching batch."""
        cdef uint64_t start
        with nogil:
            start = lsmkv_thread_ns()
            filter_probe_many(&self.f, probes.hashes, probes.n, probes.verdicts)
            start = lsmkv_thread_ns() - start
        return <double>start / probes.n

    def single_ns(self, Probes probes not None):
        """Nanoseconds per single probe. Each result decides a branch, as in a lookup."""
        cdef uint64_t start
        cdef size_t i
        with nogil:
            start = lsmkv_thread_ns()
            for i in range(probes.n):
                if filter_probe(&self.f, probes.hashes[i]):
                    probes.verdicts[i] = 1
                else:
                    probes.verdicts[i] = 0
            start = lsmkv_thread_ns() - start
        return <double>start / probes.n


cdef class FuseFilter:
    """The fuse filter of the data plane over n random hashes."""

    cdef FilterC f
    cdef uint8_t* bits
    cdef readonly size_t nbytes
    cdef readonly double add_ns          # per key: the whole construction
    cdef readonly double verify_ns

    def __cinit__(self, size_t n_keys, uint32_t width, uint64_t seed):
        cdef uint64_t* hashes = <uint64_t*>malloc((n_keys + 1) * sizeof(uint64_t))
        cdef size_t i, n = n_keys, missing
        cdef uint64_t start
        cdef int result
        if hashes == NULL:
            raise MemoryError("cannot allocate the hashes")
        memset(&self.f, 0, sizeof(FilterC))
        self.f.fuse.width = <uint8_t>width
        fuse_geometry(n, width, &self.f.fuse)
        self.nbytes = lsm_fuse_bytes(&self.f.fuse)
        self.bits = _bits(self.nbytes)
        with nogil:
            for i in range(n):
                hashes[i] = next_random(&seed)
            start = lsmkv_thread_ns()
            result = fuse_build(hashes, &n, FUSE_ATTEMPTS, &self.f.fuse, self.bits)
            self.add_ns = <double>(lsmkv_thread_ns() - start) / n_keys
            self.f.bits = self.bits
            self.f.n_blocks = lsm_fuse_slots(&self.f.fuse)
            self.f.usable = 1
            start = lsmkv_thread_ns()
            missing = filter_count_missing(&self.f, hashes, n)
            self.verify_ns = <double>(lsmkv_thread_ns() - start) / n_keys
        free(hashes)
        if result != FUSE_BUILT or missing or n != n_keys:
            raise AssertionError("the fuse filter was not built, or lost keys")

    def __dealloc__(self):
        free(self.bits)

    def batch_ns(self, Probes probes not None):
        """Nanoseconds per probe of a prefetching batch."""
        cdef uint64_t start
        with nogil:
            start = lsmkv_thread_ns()
            filter_probe_many(&self.f, probes.hashes, probes.n, probes.verdicts)
            start = lsmkv_thread_ns() - start
        return <double>start / probes.n

    def single_ns(self, Probes probes not None):
        """Nanoseconds per single probe. Each result decides a branch, as in a lookup."""
        cdef uint64_t start
        cdef size_t i
        with nogil:
            start = lsmkv_thread_ns()
            for i in range(probes.n):
                if filter_probe(&self.f, probes.hashes[i]):
                    probes.verdicts[i] = 1
                else:
                    probes.verdicts[i] = 0
            start = lsmkv_thread_ns() - start
        return <double>start / probes.n


cdef class ClassicFilter:
    """k bits anywhere in the filter, by double hashing; a probe stops at the first zero bit."""

    cdef uint8_t* bits
    cdef uint64_t n_bits
    cdef uint32_t k

    def __cinit__(self, size_t nbytes, uint32_t k, uint64_t seed):
        """Half of the bits are set at random, as in a full filter with the optimal k."""
        cdef uint64_t i
        self.bits = _bits(nbytes)
        self.n_bits = nbytes * 8
        self.k = k
        for i in range(nbytes // 8):
            (<uint64_t*>self.bits)[i] = next_random(&seed)

    def __dealloc__(self):
        free(self.bits)

    cdef inline bint _probe(self, uint64_t h) noexcept nogil:
        cdef uint64_t step = (h << 32 | h >> 32) | 1
        cdef uint64_t bit
        cdef uint32_t _i
        for _i in range(self.k):
            bit = lsmkv_mulhi(h, self.n_bits)
            if not self.bits[bit >> 3] >> (bit & 7) & 1:
                return False
            h += step
        return True

    def single_ns(self, Probes probes not None):
        cdef uint64_t start
        cdef size_t i
        with nogil:
            start = lsmkv_thread_ns()
            for i in range(probes.n):
                if self._probe(probes.hashes[i]):
                    probes.verdicts[i] = 1
                else:
                    probes.verdicts[i] = 0
            start = lsmkv_thread_ns() - start
        return <double>start / probes.n
