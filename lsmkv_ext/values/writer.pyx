import os
from contextlib import suppress

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from lsmkv_ext.cache.fd_cache cimport FdCache
from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_store64
from lsmkv_ext.port.bytes_like cimport get_bytes_view
from lsmkv_ext.port.compression cimport (
    COMPRESS_BEYOND_RATIO,
    COMPRESSION_LZ4,
    COMPRESSION_ZSTD,
    compress,
    compressed_bound,
    compressor_free,
)
from lsmkv_ext.port.file cimport (
    OPEN_CREATE,
    file_close,
    file_datasync,
    file_open,
    file_pwrite,
    file_pwritev,
    file_truncate,
    iovec,
)
from lsmkv_ext.port.growable cimport buf_free, buf_reserve
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from lsmkv_ext.port.status cimport ST_OK, fail_io, fail_memory, raise_status, status_clear
from lsmkv_ext.port.zstd cimport zstd_ready
from lsmkv_ext.values.format cimport (
    CHUNK_ENTRY,
    VALUE_CHUNK,
    VALUE_HEADER,
    VALUE_LOG_HEAD,
    VALUE_STORED,
    chunk_checksum,
    chunk_count,
    chunk_entry_encode,
    chunk_size,
    chunk_stored,
    pointer_decode,
    pointer_encode,
    value_head_encode,
    value_header_encode,
    value_padded,
    value_size,
)
from lsmkv_ext.values.reader cimport ChunkReader, chunks_begin, chunks_end, chunks_next

from lsmkv_ext.errors import SyncError

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef extern from * nogil:
    """
    #define MAX_PREFAULT (256 << 10)
    static const char lsm_zeros[MAX_PREFAULT];
    """
    const char lsm_zeros[]
    enum:
        MAX_PREFAULT                    # bytes of zeros written ahead; longer writes get large folios by themselves

cdef enum:
    STREAM_PIECE = 16 * VALUE_CHUNK     # bytes read from a file at a time
    PACKED_PIECE = 16 * VALUE_CHUNK     # bytes compressed at a time; the first so many decide whether a value is compressed

HEAD_SIZE = VALUE_LOG_HEAD      # the offset of the first value

cdef uint64_t _least_prefault = 32 << 10    # unsynced bytes before which zeros are not worth a system call


def set_least_prefault(uint64_t n):
    """Only tests change it: their values are short."""
    global _least_prefault
    _least_prefault = n


# --- appending -------------------------------------------------------------------------------------------------------

cdef int value_writer_open(ValueWriterC* w, const char* path, uint64_t number, uint64_t identity, Status* st) noexcept nogil:
    cdef char head[VALUE_LOG_HEAD]
    cdef int err
    memset(w, 0, sizeof(ValueWriterC))
    w.fd = -1
    err = file_open(path, OPEN_CREATE, &w.fd)
    if err:
        w.fd = -1
        return fail_io(st, "value log: create", err)
    pthread_mutex_init(&w.sync_mutex, NULL)
    w.number = number
    w.identity = identity
    value_head_encode(head, number, identity)
    err = file_pwrite(w.fd, head, VALUE_LOG_HEAD, 0)
    if err:
        value_writer_close(w)
        unlink(path)
        return fail_io(st, "value log: create", err)
    w.offset = VALUE_LOG_HEAD
    return ST_OK


cdef void value_writer_close(ValueWriterC* w) noexcept nogil:
    if w.offset or w.identity:
        if w.fd >= 0:
            file_close(w.fd)
            pthread_mutex_destroy(&w.sync_mutex)
        w.fd = -1
    compressor_free(&w.compressor)
    buf_free(&w.packed)
    buf_free(&w.table)


cdef char* table_room(ValueWriterC* w, uint64_t raw) noexcept nogil:
    """Room for a chunk table and its padding, or NULL."""
    w.table.len = 0
    return w.table.data if buf_reserve(&w.table, CHUNK_ENTRY * chunk_count(raw) + 8) == 0 else NULL


cdef size_t pad_table(char* table, const ValuePointer* p) noexcept nogil:
    """Writes the zeros after a chunk table. Returns its bytes with them."""
    cdef size_t n = CHUNK_ENTRY * chunk_count(p.raw)
    cdef size_t padding = value_padded(p.stored, p.raw) - value_size(p.stored, p.raw)
    memset(table + n, 0, padding)
    return n + padding


cdef void advance(ValueWriterC* w, const ValuePointer* p) noexcept nogil:
    lsm_store64(&w.offset, p.offset + value_padded(p.stored, p.raw))
    if w.log != NULL:
        lsm_store64(&w.log.end, w.offset)


cdef void prefault(ValueWriterC* w, uint64_t at, uint64_t n) noexcept nogil:
    """Writes zeros ahead, before n bytes are written at an offset; at most as many as there are unsynced bytes, because a sync
    takes them along."""
    cdef uint64_t unsynced = at - lsm_load64(&w.synced)
    cdef uint64_t step = MAX_PREFAULT
    cdef uint64_t start, goal
    if at + n <= w.prefaulted or n > MAX_PREFAULT or unsynced < _least_prefault:
        return
    while step > unsynced:
        step //= 2
    # The kernel aligns a folio to its size.
    start = max(at, w.prefaulted)
    goal = min((at + n + step - 1) & ~(step - 1), start + MAX_PREFAULT)
    # If this fails, the write meets the same error, or needs less room.
    file_pwrite(w.fd, lsm_zeros, goal - start, start)
    w.prefaulted = goal


cdef int write_value(ValueWriterC* w, const ValuePointer* p, const char* chunks, char* table, Status* st) noexcept nogil:
    cdef char header[VALUE_HEADER]
    cdef iovec pieces[3]
    cdef int err
    prefault(w, p.offset, value_padded(p.stored, p.raw))
    value_header_encode(header, p, w.identity)
    pieces[0].iov_base = header
    pieces[0].iov_len = VALUE_HEADER
    pieces[1].iov_base = <void*>chunks
    pieces[1].iov_len = p.stored
    pieces[2].iov_base = table
    pieces[2].iov_len = pad_table(table, p)
    err = file_pwritev(w.fd, pieces, 3, p.offset)
    if err:
        return fail_io(st, "value log: write", err)
    advance(w, p)
    return ST_OK


cdef int pack_chunk(ValueWriterC* w, int codec, const char* chunk, uint64_t n, char* out) noexcept nogil:
    """Compresses a chunk to `out`, which has room for compressed_bound(n) bytes, or copies it. Returns its stored bytes, or
    COMPRESS_BEYOND_RATIO after copying it."""
    cdef int got = compress(&w.compressor, codec, chunk, <int>n, out, <int>n)
    if got > 0:
        return got
    memcpy(out, chunk, n)
    return got if got == COMPRESS_BEYOND_RATIO else <int>n


cdef uint64_t pack(ValueWriterC* w, int* codec, const char* value, size_t n, char* table) noexcept nogil:
    """Compresses the chunks and fills their table. Returns the stored bytes; 0 if that saves too little, or without memory. Of a
    long value it takes the first piece. May change the codec."""
    cdef int64_t stored
    n = min(n, <size_t>PACKED_PIECE)
    if (n < 16 or (codec[0] == COMPRESSION_ZSTD and not zstd_ready())
            or buf_reserve(&w.packed, n + compressed_bound(VALUE_CHUNK)) != 0):
        return 0
    stored = pack_chunks(w, codec[0], value, n, table)
    if stored == COMPRESS_BEYOND_RATIO:
        codec[0] = COMPRESSION_LZ4
        stored = pack_chunks(w, COMPRESSION_LZ4, value, n, table)
    return stored


cdef int64_t pack_chunks(ValueWriterC* w, int codec, const char* value, size_t n, char* table) noexcept nogil:
    """Returns the stored bytes, 0 if that saves too little, or COMPRESS_BEYOND_RATIO."""
    cdef uint64_t i, limit = n - n // 16
    cdef uint64_t at = 0
    cdef uint64_t start = w.offset + VALUE_HEADER
    cdef int got
    w.packed.len = 0
    for i in range(chunk_count(n)):
        got = pack_chunk(w, codec, value + i * VALUE_CHUNK, chunk_size(n, i), w.packed.data + at)
        if got == COMPRESS_BEYOND_RATIO:
            return got
        chunk_entry_encode(table + i * CHUNK_ENTRY, got,
                           chunk_checksum(w.packed.data + at, got, start + at, w.identity))
        at += got
        if at > limit:
            return 0
    return <int64_t>at


cdef int append_in_pieces(ValueWriterC* w, const char* value, size_t n, ValuePointer* out, Status* st) noexcept nogil:
    """Appends a long value whose first piece is packed. Compressed as a whole it would take as much memory again."""
    cdef int err = file_pwrite(w.fd, w.packed.data, out.stored, out.offset + VALUE_HEADER)
    if err:
        return fail_io(st, "value log: write", err)
    if stream_add(w, out, PACKED_PIECE // VALUE_CHUNK, value + PACKED_PIECE, n - PACKED_PIECE, st) != ST_OK:
        return st.code
    return stream_end(w, out, st)


cdef int value_append(ValueWriterC* w, const char* value, size_t n, int compression, ValuePointer* out,
                      Status* st) noexcept nogil:
    cdef char* table = table_room(w, n)
    cdef uint64_t i, at
    if table == NULL:
        return fail_memory(st, "value")
    out.number = w.number
    out.offset = w.offset
    out.raw = n
    out.compression = compression
    out.stored = pack(w, &out.compression, value, n, table) if compression != VALUE_STORED else 0
    if out.stored and n > PACKED_PIECE:
        return append_in_pieces(w, value, n, out, st)
    if out.stored:
        return write_value(w, out, w.packed.data, table, st)
    out.stored = n
    out.compression = VALUE_STORED
    for i in range(chunk_count(n)):
        at = i * VALUE_CHUNK
        chunk_entry_encode(table + i * CHUNK_ENTRY, <uint32_t>chunk_size(n, i),
                           chunk_checksum(value + at, chunk_size(n, i), out.offset + VALUE_HEADER + at, w.identity))
    return write_value(w, out, value, table, st)


cdef int stream_begin(ValueWriterC* w, uint64_t raw, int compression, ValuePointer* p, Status* st) noexcept nogil:
    p.number = w.number
    p.offset = w.offset
    p.raw = raw
    p.stored = 0
    p.compression = compression
    w.packed.len = 0
    if table_room(w, raw) == NULL or buf_reserve(&w.packed, compressed_bound(VALUE_CHUNK)) != 0:
        return fail_memory(st, "value")
    if compression == COMPRESSION_ZSTD and not zstd_ready():
        p.compression = VALUE_STORED
    return ST_OK


cdef int stream_add(ValueWriterC* w, ValuePointer* p, uint64_t first_chunk, const char* data, size_t n,
                    Status* st) noexcept nogil:
    cdef uint64_t i, at
    cdef uint32_t stored
    cdef const char* chunk
    cdef int err, packed
    for i in range(chunk_count(n)):
        chunk = data + i * VALUE_CHUNK
        stored = <uint32_t>chunk_size(n, i)
        if p.compression != VALUE_STORED:
            packed = pack_chunk(w, p.compression, chunk, stored, w.packed.data)
            chunk = w.packed.data
            # The codec is settled: what it compresses beyond its bound is stored.
            stored = stored if packed == COMPRESS_BEYOND_RATIO else <uint32_t>packed
        at = p.offset + VALUE_HEADER + p.stored
        chunk_entry_encode(w.table.data + (first_chunk + i) * CHUNK_ENTRY, stored, chunk_checksum(chunk, stored, at, w.identity))
        prefault(w, at, stored)
        err = file_pwrite(w.fd, chunk, stored, at)
        if err:
            return fail_io(st, "value log: write", err)
        p.stored += stored
    return ST_OK


cdef int stream_end(ValueWriterC* w, ValuePointer* p, Status* st) noexcept nogil:
    if p.stored == p.raw:
        p.compression = VALUE_STORED        # no chunk shrank
    return write_ends(w, p, w.table.data, st)


cdef int copy_pieces(ValueWriterC* w, ChunkReader* r, const ValuePointer* p, char* table, Status* st) noexcept nogil:
    cdef uint64_t i, offset
    cdef uint64_t at = p.offset + VALUE_HEADER
    cdef const char* chunk
    cdef int err
    while chunks_next(r, st) == ST_OK and r.count:
        chunk = r.data
        offset = at
        for i in range(r.first, r.first + r.count):
            chunk_entry_encode(table + i * CHUNK_ENTRY, chunk_stored(r.table, i),
                               chunk_checksum(chunk, chunk_stored(r.table, i), offset, w.identity))
            chunk += chunk_stored(r.table, i)
            offset += chunk_stored(r.table, i)
        if r.n == p.stored:
            return write_value(w, p, r.data, table, st)     # in one piece
        err = file_pwrite(w.fd, r.data, r.n, at)
        if err:
            return fail_io(st, "value log: write", err)
        at = offset
    return st.code if st.code != ST_OK else write_ends(w, p, table, st)


cdef int write_ends(ValueWriterC* w, const ValuePointer* p, char* table, Status* st) noexcept nogil:
    """Writes the header and the chunk table around chunks that are written."""
    cdef char header[VALUE_HEADER]
    cdef int err
    value_header_encode(header, p, w.identity)
    err = file_pwrite(w.fd, table, pad_table(table, p), p.offset + VALUE_HEADER + p.stored)
    if err == 0:
        err = file_pwrite(w.fd, header, VALUE_HEADER, p.offset)
    if err:
        return fail_io(st, "value log: write", err)
    advance(w, p)
    return ST_OK


cdef int value_copy(ValueWriterC* w, ValueLogC* source, const ValuePointer* p, ValuePointer* out, Status* st) noexcept nogil:
    cdef ChunkReader r
    cdef char* table = table_room(w, p.raw)
    if table == NULL:
        return fail_memory(st, "value")
    memset(&r, 0, sizeof(ChunkReader))
    out[0] = p[0]
    out.number = w.number
    out.offset = w.offset
    if chunks_begin(&r, source, p, st) == ST_OK:
        copy_pieces(w, &r, out, table, st)
    chunks_end(&r)
    return st.code


cdef int value_sync(ValueWriterC* w) noexcept nogil:
    cdef uint64_t end
    cdef int err
    pthread_mutex_lock(&w.sync_mutex)
    err = w.sync_error
    end = lsm_load64(&w.offset)
    if err == 0 and lsm_load64(&w.synced) < end:
        err = file_datasync(w.fd)
        if err:
            # The kernel may have dropped the dirty pages: a second fdatasync could succeed and prove nothing.
            w.sync_error = err
        else:
            lsm_store64(&w.synced, end)
    pthread_mutex_unlock(&w.sync_mutex)
    return err


cdef int value_seal(ValueWriterC* w) noexcept nogil:
    cdef int err = 0
    if w.prefaulted > w.offset:
        err = file_truncate(w.fd, w.offset)
        w.prefaulted = 0
    return err if err else value_sync(w)


# --- Python ----------------------------------------------------------------------------------------------------------

cdef bytes read_exactly(object file, uint64_t n):
    cdef list pieces = []
    cdef uint64_t got = 0
    while got < n:
        piece = bytes(file.read(n - got))
        if not piece:
            raise ValueError(f"the file ends {n - got} bytes before the given length")
        if len(piece) > n - got:
            raise ValueError("the file returned more bytes than asked for")
        pieces.append(piece)
        got += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@cython.no_gc       # its references cannot form a cycle
cdef class ValueWriter:
    """Creates a value log and appends to it; `log` reads it. It is not synced, and neither is its name."""

    def __cinit__(self, path, uint64_t number, FdCache fds=None):
        cdef Status st
        cdef bytes encoded
        cdef const char* cpath
        cdef uint64_t identity = int.from_bytes(os.urandom(8), "little") or 1
        self.path = os.fsdecode(path)
        encoded = os.fsencode(self.path)
        cpath = encoded
        self.c = <ValueWriterC*>calloc(1, sizeof(ValueWriterC))
        if self.c == NULL:
            raise MemoryError("value log")
        self.c.fd = -1
        status_clear(&st)
        with nogil:
            value_writer_open(self.c, cpath, number, identity, &st)
        raise_status(&st, self.path)
        try:
            self.log = ValueLog(path, number, fds, identity=identity)
        except BaseException:
            with suppress(OSError):  # the next open removes it: the error before this one matters more
                os.unlink(self.path)
            raise
        self.c.log = self.log.c

    def __dealloc__(self):
        if self.c != NULL:
            value_writer_close(self.c)
            free(self.c)

    @property
    def number(self):
        return self.c.number

    @property
    def size(self):
        """Bytes written."""
        return lsm_load64(&self.c.offset)

    @property
    def synced(self):
        """Offset up to which values are known to be on disk."""
        return lsm_load64(&self.c.synced)

    def append(self, value, int compression=0):
        """Append a value and return its pointer. The engine calls value_append instead."""
        cdef ValuePointer p
        cdef Py_buffer vb
        cdef Status st
        cdef char pointer[POINTER_SIZE]
        status_clear(&st)
        get_bytes_view(value, &vb)
        try:
            value_append(self.c, <const char*>vb.buf, vb.len, compression, &p, &st)
        finally:
            PyBuffer_Release(&vb)
        raise_status(&st, self.path)
        pointer_encode(&p, pointer)
        return PyBytes_FromStringAndSize(pointer, POINTER_SIZE)

    def stream(self, file, uint64_t length, int compression=0):
        """Append a value of `length` bytes that is read from `file` piece by piece, and return its pointer."""
        cdef ValuePointer p
        cdef Status st
        cdef uint64_t done = 0
        cdef bytes piece
        cdef const char* data
        cdef size_t n
        cdef char pointer[POINTER_SIZE]
        status_clear(&st)
        stream_begin(self.c, length, compression, &p, &st)
        while st.code == ST_OK and done < length:
            piece = read_exactly(file, min(length - done, <uint64_t>STREAM_PIECE))
            data = piece
            n = len(piece)
            with nogil:
                stream_add(self.c, &p, done // VALUE_CHUNK, data, n, &st)
            done += n
        if st.code == ST_OK:
            stream_end(self.c, &p, &st)
        raise_status(&st, self.path)
        pointer_encode(&p, pointer)
        return PyBytes_FromStringAndSize(pointer, POINTER_SIZE)

    def copy(self, ValueLog source not None, bytes pointer not None):
        """Append a copy of another log's value and return its pointer."""
        cdef ValuePointer p, out
        cdef Status st
        cdef char copied[POINTER_SIZE]
        if len(pointer) != POINTER_SIZE or pointer_decode(pointer, &p) != NULL:
            raise ValueError("malformed pointer")
        status_clear(&st)
        with nogil:
            value_copy(self.c, source.c, &p, &out, &st)
        raise_status(&st, source.path)
        pointer_encode(&out, copied)
        return PyBytes_FromStringAndSize(copied, POINTER_SIZE)

    def sync(self):
        """Make everything appended so far survive a power cut, but for the name of the file."""
        cdef int err
        with nogil:
            err = value_sync(self.c)
        if err:
            raise SyncError(err, f"value log: fdatasync: {os.strerror(err)}", self.path)

    def seal(self):
        """Sync it after the last append. The file then ends with its last value."""
        cdef int err
        with nogil:
            err = value_seal(self.c)
        if err:
            raise SyncError(err, f"value log: seal: {os.strerror(err)}", self.path)
