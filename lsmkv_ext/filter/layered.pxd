# A filter made of Bloom filters with the same seed: a key is in it if it is in one of them.
#
# GIL-protected: parts. The list is replaced, never changed: a call that releases the GIL keeps the one that it began with.

from libc.stdint cimport uint8_t, uint64_t

from lsmkv_ext.filter.bloom cimport BlockedBloom
from lsmkv_ext.filter.key_filter cimport GrowingFilter


cdef class LayeredBloom(GrowingFilter):
    cdef list parts               # of BlockedBloom
    cdef int _prepare(self) except -1      # with the GIL, before each use: time may have passed
    # With the GIL, which it releases: out[i] = 1 if one of the layers may have the key.
    cdef int test_layers(self, list layers, const uint64_t* hashes, size_t n, uint8_t* out) except -1
    cdef int add_chunk(self, const uint64_t* hashes, size_t n) except -1     # with the GIL
