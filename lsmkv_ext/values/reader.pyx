import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport ENOENT
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from lsmkv_ext.cache.fd_cache cimport fd_acquire, fd_duplicate, fd_forget, fd_release
from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.atomics cimport lsm_load64
from lsmkv_ext.port.compression cimport compressed_check, decompress
from lsmkv_ext.port.file cimport (
    ERR_NOT_REGULAR,
    OPEN_READ,
    file_close,
    file_open,
    file_pread,
    file_preadv,
    file_preadv_cached,
    file_size,
    iovec,
)
from lsmkv_ext.port.handle cimport fork_count
from lsmkv_ext.port.status cimport ST_OK, fail_corrupt, fail_format, fail_io, fail_memory, raise_status, status_clear
from lsmkv_ext.values.format cimport (
    CHUNK_ENTRY,
    VALUE_CHUNK,
    VALUE_HEADER,
    VALUE_LOG_HEAD,
    VALUE_LOG_VERSION,
    VALUE_STORED,
    chunk_check,
    chunk_count,
    chunk_size,
    chunk_sizes_check,
    chunk_stored,
    pointer_decode,
    pointer_end,
    value_head_decode,
    value_header_check,
    value_padded,
    value_size,
)

cdef enum:
    SMALL_TABLE = 16            # chunks whose table fits on the stack
    LONG_VALUE = 2 * VALUE_CHUNK    # stored bytes of a compressed value that are read in one piece
    SMALL_VALUE = 16 << 10      # bytes of a compressed value, with header and table, that fit on the stack


# --- the file --------------------------------------------------------------------------------------------------------

cdef int acquire(ValueLogC* v, int* fd, Status* st) noexcept nogil:
    cdef int err
    if v.fds == NULL:
        fd[0] = v.handle.fd
        return ST_OK
    err = fd_acquire(v.fds, &v.handle, fd)
    if err == ENOENT:
        # Only a read-only handle can miss a file: its descriptor was evicted, and the writer unlinked the file.
        return fail_io(st, "the writer removed a value log; call refresh() on the read-only handle", err)
    if err == ERR_NOT_REGULAR:
        return fail_corrupt(st, "not a regular file", v.number, 0)
    return fail_io(st, "opening a value log", err) if err else ST_OK


cdef inline void release(ValueLogC* v) noexcept nogil:
    if v.fds != NULL:
        fd_release(v.fds, &v.handle)


cdef int finish_read(ValueLogC* v, int err, size_t got, size_t n, uint64_t offset, Status* st) noexcept nogil:
    release(v)
    if err != 0:
        return fail_io(st, "reading a value log", err)
    if got != n:
        return fail_corrupt(st, "the value log is shorter than a pointer says", v.number, offset + got)
    return ST_OK


cdef int read_at(ValueLogC* v, char* buf, size_t n, uint64_t offset, Status* st) noexcept nogil:
    cdef size_t got = 0
    cdef int fd = -1
    cdef int err
    if acquire(v, &fd, st) != ST_OK:
        return st.code
    err = file_pread(fd, buf, n, offset, &got)
    return finish_read(v, err, got, n, offset, st)


cdef int check_end(const ValueLogC* v, const ValuePointer* p, Status* st) noexcept nogil:
    """Before anything is allocated for the value."""
    if pointer_end(p) > lsm_load64(&v.end):
        return fail_corrupt(st, "a pointer leads beyond the end of its value log", v.number, p.offset)
    return ST_OK


# --- whole values ----------------------------------------------------------------------------------------------------

cdef const char* check_chunks(const ValueLogC* v, const ValuePointer* p, const char* table, const char* chunks) noexcept nogil:
    cdef const char* problem = chunk_sizes_check(table, p)
    cdef uint64_t i, at = 0
    for i in range(chunk_count(p.raw)):
        if problem != NULL:
            break
        problem = chunk_check(table, i, chunks + at, p.offset + VALUE_HEADER + at, v.identity)
        at += chunk_stored(table, i)
    return problem


cdef int unpack_chunk(const ValueLogC* v, const ValuePointer* p, uint64_t i, const char* chunk, uint32_t stored, char* out,
                      Status* st) noexcept nogil:
    cdef uint64_t raw = chunk_size(p.raw, i)
    cdef const char* problem
    if stored == raw:
        memcpy(out, chunk, raw)
        return ST_OK
    problem = compressed_check(p.compression, chunk, stored, raw)
    if problem != NULL:
        return fail_corrupt(st, problem, v.number, p.offset)
    return decompress(p.compression, chunk, stored, out, raw, v.number, p.offset, st)


cdef int unpack(const ValueLogC* v, const ValuePointer* p, const char* table, const char* chunks, char* out,
                Status* st) noexcept nogil:
    cdef uint64_t i
    for i in range(chunk_count(p.raw)):
        if unpack_chunk(v, p, i, chunks, chunk_stored(table, i), out + i * VALUE_CHUNK, st) != ST_OK:
            break
        chunks += chunk_stored(table, i)
    return st.code


cdef void value_pieces(iovec* pieces, char* header, const ValuePointer* p, char* out, char* table) noexcept nogil:
    pieces[0].iov_base = header
    pieces[0].iov_len = VALUE_HEADER
    pieces[1].iov_base = out
    pieces[1].iov_len = p.raw
    pieces[2].iov_base = table
    pieces[2].iov_len = CHUNK_ENTRY * chunk_count(p.raw)


cdef int read_stored(ValueLogC* v, const ValuePointer* p, char* out, char* table, Status* st) noexcept nogil:
    """Reads an uncompressed value straight into `out`."""
    cdef char header[VALUE_HEADER]
    cdef iovec pieces[3]
    cdef size_t got = 0
    cdef const char* problem
    cdef int fd = -1
    cdef int err
    if acquire(v, &fd, st) != ST_OK:
        return st.code
    value_pieces(pieces, header, p, out, table)
    err = file_preadv(fd, pieces, 3, p.offset, &got)
    if finish_read(v, err, got, value_size(p.stored, p.raw), p.offset, st) != ST_OK:
        return st.code
    problem = value_header_check(header, p, v.identity)
    if problem == NULL:
        problem = check_chunks(v, p, table, out)
    return ST_OK if problem == NULL else fail_corrupt(st, problem, v.number, p.offset)


cdef bint value_read_cached(ValueLogC* v, const ValuePointer* p, char* out) noexcept nogil:
    cdef char header[VALUE_HEADER]
    cdef char table[SMALL_TABLE * CHUNK_ENTRY]
    cdef iovec pieces[3]
    cdef size_t got = 0
    cdef Status st
    cdef int fd = -1
    if p.compression != VALUE_STORED or chunk_count(p.raw) > SMALL_TABLE or pointer_end(p) > lsm_load64(&v.end):
        return False
    status_clear(&st)
    if acquire(v, &fd, &st) != ST_OK:
        return False
    value_pieces(pieces, header, p, out, table)
    file_preadv_cached(fd, pieces, 3, p.offset, &got)
    release(v)
    return (got == value_size(p.stored, p.raw) and value_header_check(header, p, v.identity) == NULL
            and check_chunks(v, p, table, out) == NULL)


cdef int value_check(const ValueLogC* v, const ValuePointer* p, const char* value, Status* st) noexcept nogil:
    cdef const char* problem = value_header_check(value, p, v.identity)
    if problem == NULL:
        problem = check_chunks(v, p, value + VALUE_HEADER + p.stored, value + VALUE_HEADER)
    return ST_OK if problem == NULL else fail_corrupt(st, problem, v.number, p.offset)


cdef int value_acquire(ValueLogC* v, const ValuePointer* p, int* fd, Status* st) noexcept nogil:
    return st.code if check_end(v, p, st) != ST_OK else acquire(v, fd, st)


cdef void value_release(ValueLogC* v) noexcept nogil:
    release(v)


cdef int read_packed(ValueLogC* v, const ValuePointer* p, char* out, char* buffer, Status* st) noexcept nogil:
    """Reads a compressed value through `buffer`, which has room for all of it."""
    cdef const char* chunks = buffer + VALUE_HEADER
    cdef const char* table = chunks + p.stored
    cdef const char* problem
    if read_at(v, buffer, value_size(p.stored, p.raw), p.offset, st) != ST_OK:
        return st.code
    problem = value_header_check(buffer, p, v.identity)
    if problem == NULL:
        problem = check_chunks(v, p, table, chunks)
    if problem != NULL:
        return fail_corrupt(st, problem, v.number, p.offset)
    return unpack(v, p, table, chunks, out, st)


cdef int read_long(ValueLogC* v, const ValuePointer* p, char* out, Status* st) noexcept nogil:
    """Reads a long compressed value through one chunk of memory: page faults in more cost as much as the decompression."""
    cdef ChunkReader r
    cdef char* buffer = <char*>lsm_alloc(VALUE_CHUNK)
    cdef uint64_t i, at
    if buffer == NULL:
        return fail_memory(st, "value")
    memset(&r, 0, sizeof(ChunkReader))
    if chunks_begin(&r, v, p, st) == ST_OK:
        at = r.offset
        for i in range(chunk_count(p.raw)):
            if chunk_read(&r, i, at, buffer, out + i * VALUE_CHUNK, st) != ST_OK:
                break
            at += chunk_stored(r.table, i)
    chunks_end(&r)
    lsm_free(buffer)
    return st.code


cdef int value_read(ValueLogC* v, const ValuePointer* p, char* out, Status* st) noexcept nogil:
    cdef char scratch[SMALL_VALUE]
    cdef char* buffer = scratch
    cdef bint packed = p.compression != VALUE_STORED
    cdef size_t n = value_size(p.stored, p.raw) if packed else CHUNK_ENTRY * chunk_count(p.raw)
    if check_end(v, p, st) != ST_OK:
        return st.code
    if packed and p.stored > LONG_VALUE:
        return read_long(v, p, out, st)
    if n > SMALL_VALUE:
        buffer = <char*>lsm_alloc(n)
        if buffer == NULL:
            return fail_memory(st, "value")
    if packed:
        read_packed(v, p, out, buffer, st)
    else:
        read_stored(v, p, out, buffer, st)
    if buffer != scratch:
        lsm_free(buffer)
    return st.code


# --- piece by piece --------------------------------------------------------------------------------------------------

cdef int chunks_begin(ChunkReader* r, ValueLogC* v, const ValuePointer* p, Status* st) noexcept nogil:
    cdef size_t n = CHUNK_ENTRY * chunk_count(p.raw)
    cdef const char* problem
    r.log = v
    r.p = p[0]
    r.offset = p.offset + VALUE_HEADER
    if check_end(v, p, st) != ST_OK or read_at(v, r.header, VALUE_HEADER, p.offset, st) != ST_OK:
        return st.code
    problem = value_header_check(r.header, p, v.identity)
    if problem != NULL:
        return fail_corrupt(st, problem, v.number, p.offset)
    r.table = <char*>lsm_alloc(n + 1)
    r.data = <char*>lsm_alloc(min(p.stored, <uint64_t>(PIECE_CHUNKS * VALUE_CHUNK)) + 1)
    if r.table == NULL or r.data == NULL:
        return fail_memory(st, "value")
    if read_at(v, r.table, n, r.offset + p.stored, st) != ST_OK:
        return st.code
    problem = chunk_sizes_check(r.table, p)
    return ST_OK if problem == NULL else fail_corrupt(st, problem, v.number, p.offset)


cdef int chunks_next(ChunkReader* r, Status* st) noexcept nogil:
    cdef uint64_t i
    cdef size_t at = 0
    cdef const char* problem = NULL
    r.first += r.count
    r.offset += r.n
    r.count = min(<uint64_t>PIECE_CHUNKS, chunk_count(r.p.raw) - r.first)
    r.n = 0
    for i in range(r.count):
        r.n += chunk_stored(r.table, r.first + i)
    if read_at(r.log, r.data, r.n, r.offset, st) != ST_OK:
        return st.code
    for i in range(r.count):
        problem = chunk_check(r.table, r.first + i, r.data + at, r.offset + at, r.log.identity)
        if problem != NULL:
            return fail_corrupt(st, problem, r.log.number, r.offset + at)
        at += chunk_stored(r.table, r.first + i)
    return ST_OK


cdef int chunk_read(ChunkReader* r, uint64_t i, uint64_t offset, char* buffer, char* out, Status* st) noexcept nogil:
    cdef uint32_t stored = chunk_stored(r.table, i)
    cdef const char* problem
    if read_at(r.log, buffer, stored, offset, st) != ST_OK:
        return st.code
    problem = chunk_check(r.table, i, buffer, offset, r.log.identity)
    if problem != NULL:
        return fail_corrupt(st, problem, r.log.number, offset)
    return unpack_chunk(r.log, &r.p, i, buffer, stored, out, st)


cdef void chunks_end(ChunkReader* r) noexcept nogil:
    lsm_free(r.table)
    lsm_free(r.data)
    r.table = NULL
    r.data = NULL


cdef int value_verify(ValueLogC* v, const ValuePointer* p, Status* st) noexcept nogil:
    cdef ChunkReader r
    r.table = r.data = NULL
    r.n = r.first = r.count = 0
    if chunks_begin(&r, v, p, st) == ST_OK:
        while chunks_next(&r, st) == ST_OK and r.count:
            pass
    chunks_end(&r)
    return st.code


# --- Python ----------------------------------------------------------------------------------------------------------

cdef int read_head(ValueLogC* v, uint64_t identity, Status* st) noexcept nogil:
    """Opens the file and reads its head. `identity`: that of the file, or 0 for any."""
    cdef char head[VALUE_LOG_HEAD]
    cdef uint64_t size = 0, number = 0
    cdef uint32_t version = 0
    cdef const char* problem
    cdef int fd = -1
    cdef int err
    if v.fds == NULL:
        err = file_open(v.handle.path, OPEN_READ, &v.handle.fd)
        if err:
            return fail_io(st, "opening a value log", err)
    if acquire(v, &fd, st) != ST_OK:
        return st.code
    err = file_size(fd, &size)
    release(v)
    if err:
        return fail_io(st, "reading the size of a value log", err)
    if size < VALUE_LOG_HEAD:
        return fail_corrupt(st, "the value log ends within its head", v.number, size)
    if read_at(v, head, VALUE_LOG_HEAD, 0, st) != ST_OK:
        return st.code
    problem = value_head_decode(head, &number, &v.identity, &version)
    if version > VALUE_LOG_VERSION:
        return fail_format(st, problem, v.number)
    # A value log that was written for an ingest has the number 0.
    if problem == NULL and number and v.number and number != v.number:
        problem = "the value log has another number than its name"
    if problem == NULL and identity and identity != v.identity:
        problem = "the value log is not the one that was written"
    if problem != NULL:
        return fail_corrupt(st, problem, v.number, 0)
    v.stored_number = number
    v.end = size
    return ST_OK


cdef int decode(bytes pointer, ValuePointer* out) except -1:
    cdef Status st
    cdef const char* problem = "a pointer has 32 bytes"
    if len(pointer) == POINTER_SIZE:
        problem = pointer_decode(pointer, out)
    if problem != NULL:
        status_clear(&st)
        fail_corrupt(&st, problem, 0, 0)
        raise_status(&st, None)
    return 0


def decode_pointer(bytes pointer not None):
    """Return (number of the value log, offset, stored size, raw size, compression) of a pointer."""
    cdef ValuePointer p
    decode(pointer, &p)
    return p.number, p.offset, p.stored, p.raw, p.compression


def value_end(bytes pointer not None):
    """Return the offset after the value of a pointer and its chunk table."""
    cdef ValuePointer p
    decode(pointer, &p)
    return pointer_end(&p)


def value_bytes(bytes pointer not None):
    """Return the bytes that the value of a pointer takes in its value log, with header, chunk table and padding."""
    cdef ValuePointer p
    decode(pointer, &p)
    return value_padded(p.stored, p.raw)


@cython.no_gc_clear                # __dealloc__ needs fds alive
cdef class ValueLog:
    """A value log, open for reading. With `identity` any other file is corruption. Memtables and tables hold those that they
    point into."""

    def __cinit__(self, path, uint64_t number=0, FdCache fds=None, *, uint64_t identity=0):
        cdef Status st
        self.born = fork_count
        self.path = os.path.abspath(os.fsdecode(path))
        self._path = os.fsencode(self.path)
        self.fds = fds
        self.c = <ValueLogC*>calloc(1, sizeof(ValueLogC))
        if self.c == NULL:
            raise MemoryError("value log")
        self.c.number = number
        self.c.owner = <PyObject*>self
        self.c.fds = NULL if fds is None else fds.c
        self.c.handle.fd = -1
        self.c.handle.grows = True
        self.c.handle.path = self._path
        status_clear(&st)
        with nogil:
            read_head(self.c, identity, &st)
        raise_status(&st, self.path)

    def __dealloc__(self):
        if self.c == NULL or self.born != fork_count:
            # After a fork a thread that only the parent has may hold the cache's lock: leak it all.
            return
        if self.c.fds != NULL:
            fd_forget(self.c.fds, &self.c.handle)
        elif self.c.handle.fd >= 0:
            file_close(self.c.handle.fd)
        if self._released is not None:
            self._released.append(self.c.number)
        free(self.c)
        self.c = NULL

    def report_release(self, list into):
        """Makes it append its number to `into` once the last reference is gone: its readers are gone too."""
        self._released = into

    @property
    def number(self):
        return self.c.number

    @property
    def stored_number(self):
        """The number in its head: that of the file, or 0 if it was written for an ingest."""
        return self.c.stored_number

    @property
    def identity(self):
        """The random number that tells this file from any other of its name."""
        return self.c.identity

    @property
    def size(self):
        """Bytes that may be read."""
        return lsm_load64(&self.c.end)

    def descriptor(self):
        """A descriptor of the file, which the caller closes. The file may have no name any more."""
        return fd_duplicate(self.c.fds, &self.c.handle)

    def read(self, bytes pointer not None):
        """Return the value of a pointer."""
        cdef ValuePointer p
        cdef Status st
        cdef bytes out
        cdef char* place
        decode(pointer, &p)
        status_clear(&st)
        if check_end(self.c, &p, &st) == ST_OK:
            out = PyBytes_FromStringAndSize(NULL, p.raw)
            place = PyBytes_AS_STRING(out)
            with nogil:
                value_read(self.c, &p, place, &st)
        raise_status(&st, self.path)
        return out

    def verify(self, bytes pointer not None):
        """Raise CorruptionError if the value of a pointer is damaged."""
        cdef ValuePointer p
        cdef Status st
        decode(pointer, &p)
        status_clear(&st)
        with nogil:
            value_verify(self.c, &p, &st)
        raise_status(&st, self.path)
