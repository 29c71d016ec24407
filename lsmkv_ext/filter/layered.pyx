"""Filters made of Bloom filters."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from lsmkv_ext.filter.bloom cimport BlockedBloom
from lsmkv_ext.filter.kernel cimport filter_probe, filter_probe_many
from lsmkv_ext.filter.key_hasher cimport HASH_CHUNK


cdef class LayeredBloom(GrowingFilter):
    """Base of the filters that are made of several Bloom filters."""

    def __cinit__(self, *args, **options):
        self.parts = []

    cdef int _prepare(self) except -1:
        return self._check()

    cdef bint _test_hash(self, uint64_t h) except -1:
        cdef BlockedBloom layer
        self._prepare()
        for layer in self.parts:
            if filter_probe(&layer.f, h):
                return True
        return False

    cdef int _test_hashes(self, const uint64_t* hashes, size_t n, uint8_t* out) except -1 nogil:
        with gil:
            self._prepare()
            return self.test_layers(self.parts, hashes, n, out)

    cdef int test_layers(self, list layers, const uint64_t* hashes, size_t n, uint8_t* out) except -1:
        cdef uint8_t found[HASH_CHUNK]
        cdef BlockedBloom layer
        cdef size_t i
        memset(out, 0, n)
        for layer in layers:
            with nogil:
                filter_probe_many(&layer.f, hashes, n, found)
                for i in range(n):
                    out[i] |= found[i]
        return 0

    cdef int _add_hashes(self, const uint64_t* hashes, size_t n) except -1 nogil:
        with gil:
            return self.add_chunk(hashes, n)

    cdef int add_chunk(self, const uint64_t* hashes, size_t n) except -1:
        raise NotImplementedError

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return self._parameters() == other._parameters() and self._parts() == other._parts()

    __hash__ = None

    def _parts(self):
        self._prepare()
        return self.parts

    def _fingerprint(self):
        return "".join(layer._fingerprint() for layer in self._parts())

    @property
    def nbytes(self):
        """The size of the bits in bytes.

        >>> lsmkv.ScalableBloom(1000).nbytes
        1472
        """
        return sum(layer.nbytes for layer in self._parts())

    @property
    def fill_ratio(self):
        """The share of the bits that are set.

        >>> lsmkv.ScalableBloom(1000).fill_ratio
        0.0
        """
        layers = self._parts()
        return sum(layer.fill_ratio * layer.nbytes for layer in layers) / sum(layer.nbytes for layer in layers)

    @property
    def expected_fpr(self):
        """The false positive rate of the bits as they are now.

        >>> lsmkv.ScalableBloom(1000).expected_fpr
        0.0
        """
        cdef double no = 1
        for layer in self._parts():
            no *= 1 - layer.expected_fpr
        return 1 - no

    @property
    def approximate_count(self):
        """The number of distinct keys, estimated from the bits; a key that is in two generations counts twice.

        >>> lsmkv.ScalableBloom(1000).approximate_count
        0
        """
        return sum(layer.approximate_count for layer in self._parts())

    @property
    def count(self):
        """The number of added keys that set at least one new bit.

        >>> lsmkv.ScalableBloom(1000).count
        0
        """
        return sum(layer.count for layer in self._parts())
