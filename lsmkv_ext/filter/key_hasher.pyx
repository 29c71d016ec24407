from itertools import islice

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.stdlib cimport free, malloc

from lsmkv_ext.port.codecs cimport xxh3


cdef class KeyHasher:
    """Hashes an iterable of keys chunk by chunk, plain `bytes` with the GIL released."""

    def __cinit__(self, keys, uint64_t seed):
        self.hashes = NULL
        self.pointers = NULL
        self.lengths = NULL
        self.sequence = keys if type(keys) is list else None
        self.keys = None if self.sequence is not None else iter(keys)
        self.position = 0
        self.seed = seed
        self.hashes = <uint64_t*>malloc(HASH_CHUNK * sizeof(uint64_t))
        self.pointers = <const char**>malloc(HASH_CHUNK * sizeof(char*))
        self.lengths = <size_t*>malloc(HASH_CHUNK * sizeof(size_t))
        if self.hashes == NULL or self.pointers == NULL or self.lengths == NULL:
            raise MemoryError("no memory to hash a batch of keys")

    def __dealloc__(self):
        free(self.hashes)
        free(self.pointers)
        free(self.lengths)

    cdef Py_ssize_t take(self) except -1:
        """Takes the next chunk of keys and returns its length, 0 at the end. `hash_taken` then completes `hashes`."""
        cdef list chunk = self._next_chunk()
        cdef Py_ssize_t n = len(chunk), i
        cdef PyObject* key
        for i in range(n):
            key = <PyObject*>PyList_GET_ITEM(chunk, i)
            if PyBytes_CheckExact(<object>key):
                self.pointers[i] = PyBytes_AS_STRING(<object>key)
                self.lengths[i] = <size_t>PyBytes_GET_SIZE(<object>key)
            else:
                self.pointers[i] = NULL
                hash_key(<object>key, self.seed, &self.hashes[i])
        self.chunk = chunk
        return n

    cdef list _next_chunk(self):
        """A new list: no other thread can change it while the GIL is released."""
        cdef Py_ssize_t start = self.position
        if self.sequence is None:
            return list(islice(self.keys, HASH_CHUNK))
        self.position = min(start + HASH_CHUNK, len(self.sequence))
        return self.sequence[start:self.position]

    cdef void hash_taken(self, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(n):
            if self.pointers[i] != NULL:
                self.hashes[i] = xxh3(self.pointers[i], self.lengths[i], self.seed)
