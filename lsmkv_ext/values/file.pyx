import io

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.status cimport Status, raise_status, status_clear
from lsmkv_ext.values.format cimport VALUE_CHUNK, VALUE_HEADER, chunk_count, chunk_size, chunk_stored
from lsmkv_ext.values.reader cimport chunk_read, chunks_begin, chunks_end


@cython.no_gc       # its references cannot form a cycle
cdef class StoredValue:
    """The chunks of a value."""

    def __cinit__(self):
        self.at = <uint64_t>-1

    def __dealloc__(self):
        chunks_end(&self.r)
        lsm_free(self.offsets)
        lsm_free(self.chunk)

    cdef int open(self, ValueLog log, const ValuePointer* p) except -1:
        cdef Status st
        cdef uint64_t i, offset = p.offset + VALUE_HEADER
        self.log = log
        status_clear(&st)
        with nogil:
            chunks_begin(&self.r, log.c, p, &st)
        raise_status(&st, log.path)
        self.offsets = <uint64_t*>lsm_alloc(sizeof(uint64_t) * (chunk_count(p.raw) + 1))
        self.chunk = <char*>lsm_alloc(VALUE_CHUNK)
        if self.offsets == NULL or self.chunk == NULL:
            raise MemoryError("value")
        for i in range(chunk_count(p.raw)):
            self.offsets[i] = offset
            offset += chunk_stored(self.r.table, i)
        return 0

    cdef int load(self, uint64_t i) except -1:
        cdef Status st
        cdef uint64_t offset = self.offsets[i]
        self.at = <uint64_t>-1
        status_clear(&st)
        with nogil:
            chunk_read(&self.r, i, offset, self.r.data, self.chunk, &st)
        raise_status(&st, self.log.path)
        self.at = i
        return 0

    @property
    def size(self):
        return self.r.p.raw

    def readinto(self, target, uint64_t position):
        """Copy bytes from `position` on, as many as the chunk there has and `target` takes. Return their number."""
        cdef Py_buffer buffer
        cdef uint64_t i = position // VALUE_CHUNK
        cdef uint64_t start = position % VALUE_CHUNK
        cdef size_t n
        if position >= self.r.p.raw:
            return 0
        if self.at != i:
            self.load(i)
        PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE)
        n = min(<uint64_t>buffer.len, chunk_size(self.r.p.raw, i) - start)
        memcpy(buffer.buf, self.chunk + start, n)
        PyBuffer_Release(&buffer)
        return n


class ValueFile(io.RawIOBase):
    """The raw file behind `DB.open_value`."""

    def __init__(self, value):
        self._value = value
        self._position = 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._position

    def seek(self, offset, whence=io.SEEK_SET):
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._value.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, target):
        n = self._value.readinto(target, self._position)
        self._position += n
        return n

    def close(self):
        self._value = None
        super().close()


cdef object open_value_file(ValueLog log, const ValuePointer* p):
    cdef StoredValue value = StoredValue()
    value.open(log, p)
    return io.BufferedReader(ValueFile(value), VALUE_CHUNK)
