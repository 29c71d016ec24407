import os

from libc.string cimport memset

from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.port.file cimport OPEN_WRITE, file_close, file_datasync, file_open, file_pwrite
from lsmkv_ext.port.status cimport ST_OK, fail_io, raise_status, status_clear
from lsmkv_ext.values.format cimport (
    CHUNK_ENTRY,
    VALUE_HEADER,
    VALUE_LOG_HEAD,
    chunk_count,
    pointer_decode,
    value_head_encode,
)
from lsmkv_ext.values.reader cimport ChunkReader, chunks_begin, chunks_end, chunks_next

from lsmkv_ext.errors import SyncError


cdef int rewrite_value(int fd, ValueLogC* log, const ValuePointer* p, Status* st) noexcept nogil:
    cdef ChunkReader r
    cdef int err = 0
    memset(&r, 0, sizeof(ChunkReader))
    if chunks_begin(&r, log, p, st) == ST_OK:
        while err == 0 and chunks_next(&r, st) == ST_OK and r.count:
            err = file_pwrite(fd, r.data, r.n, r.offset)
        if err == 0 and st.code == ST_OK:
            err = file_pwrite(fd, r.table, CHUNK_ENTRY * chunk_count(p.raw), p.offset + VALUE_HEADER + p.stored)
        if err == 0 and st.code == ST_OK:
            err = file_pwrite(fd, r.header, VALUE_HEADER, p.offset)
    chunks_end(&r)
    return fail_io(st, "value log: write", err) if err else st.code


cdef class ValueRewriter:
    """Rewrites values of a value log in place. Writes the head at once."""

    def __cinit__(self, ValueLog log not None):
        cdef char head[VALUE_LOG_HEAD]
        cdef Status st
        cdef int err
        self.fd = -1
        self.log = log
        err = file_open(log._path, OPEN_WRITE, &self.fd)
        if err == 0:
            value_head_encode(head, log.c.stored_number, log.c.identity)
            err = file_pwrite(self.fd, head, VALUE_LOG_HEAD, 0)
        if err:
            status_clear(&st)
            fail_io(&st, "value log: write", err)
            raise_status(&st, log.path)

    def __dealloc__(self):
        if self.fd >= 0:
            file_close(self.fd)

    def write(self, bytes pointer not None):
        """Write the value of a pointer again, if it passes its checksums."""
        cdef ValuePointer p
        cdef Status st
        if len(pointer) != POINTER_SIZE or pointer_decode(pointer, &p) != NULL:
            raise ValueError("malformed pointer")
        status_clear(&st)
        with nogil:
            rewrite_value(self.fd, self.log.c, &p, &st)
        raise_status(&st, self.log.path)

    def sync(self):
        """Make the file survive a power cut."""
        cdef int err
        with nogil:
            err = file_datasync(self.fd)
        if err:
            raise SyncError(err, f"value log: fdatasync: {os.strerror(err)}", self.log.path)
