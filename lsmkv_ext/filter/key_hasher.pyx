from itertools import islice

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.stdlib cimport free, malloc

from lsmkv_ext.arrow.column cimport ROWS_OK, column_rows, rows_refuse
from lsmkv_ext.arrow.reader cimport open_columns
from lsmkv_ext.port.codecs cimport xxh3


cdef class KeyHasher:
    """Hashes an iterable or a column of keys chunk by chunk, plain `bytes` and columns with the GIL released."""

    def __cinit__(self, keys, uint64_t seed):
        self.hashes = NULL
        self.pointers = NULL
        self.lengths = NULL
        self.column = open_columns(keys, 1)
        self.row = self.rows_before = self.bad = 0
        self.problem = ROWS_OK
        self.sequence = keys if type(keys) is list else None
        self.keys = None if self.sequence is not None or self.column is not None else iter(keys)
        self.position = 0
        self.seed = seed
        self.hashes = <uint64_t*>malloc(HASH_CHUNK * sizeof(uint64_t))
        self.pointers = <const char**>malloc(HASH_CHUNK * sizeof(char*))
        self.lengths = <size_t*>malloc(HASH_CHUNK * sizeof(size_t))
        if self.hashes == NULL or self.pointers == NULL or self.lengths == NULL:
            raise MemoryError("no memory to hash a batch of keys")
        if self.column is not None and not self.column.next():
            self.column.length = 0

    def __dealloc__(self):
        free(self.hashes)
        free(self.pointers)
        free(self.lengths)

    cdef Py_ssize_t take(self) except -1:
        """Takes the next chunk of keys and returns its length, 0 at the end. `hash_taken` then completes `hashes`."""
        cdef list chunk
        cdef Py_ssize_t n, i
        cdef PyObject* key
        if self.column is not None:
            return self._take_rows()
        chunk = self._next_chunk()
        n = len(chunk)
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

    cdef Py_ssize_t _take_rows(self) except -1:
        cdef int64_t n
        while self.row == self.column.length:
            self.rows_before += self.column.length
            self.row = 0
            self.column.length = 0
            if not self.column.next():
                return 0
        n = min(self.column.length - self.row, <int64_t>HASH_CHUNK)
        self.row += n
        return <Py_ssize_t>n

    cdef list _next_chunk(self):
        """A new list: no other thread can change it while the GIL is released."""
        cdef Py_ssize_t start = self.position
        if self.sequence is None:
            return list(islice(self.keys, HASH_CHUNK))
        self.position = min(start + HASH_CHUNK, len(self.sequence))
        return self.sequence[start:self.position]

    cdef bint hash_taken(self, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i
        if self.column is not None:
            self.problem = column_rows(
                &self.column.columns[0], self.row - n, <size_t>n, False, self.pointers, self.lengths, &self.bad
            )
            if self.problem != ROWS_OK:
                return False
        for i in range(n):
            if self.pointers[i] != NULL:
                self.hashes[i] = xxh3(self.pointers[i], self.lengths[i], self.seed)
        return True

    cdef int check(self) except -1:
        if self.problem != ROWS_OK:
            rows_refuse(self.problem, self.rows_before + self.bad)
        return 0
