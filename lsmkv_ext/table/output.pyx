from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset, strlen

from lsmkv_ext.block.memory cimport BLOCK_MAX_RAW
from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.compression cimport (
    COMPRESS_BEYOND_RATIO,
    COMPRESS_NO_MEMORY,
    COMPRESSION_LZ4,
    COMPRESSION_MAX_RAW,
    compress,
    compressed_bound,
    compressor_free,
)
from lsmkv_ext.port.file cimport OPEN_CREATE, file_close, file_open, file_sync, file_write
from lsmkv_ext.port.growable cimport buf_append, buf_free, buf_reserve
from lsmkv_ext.port.status cimport ST_OK, fail_argument, fail_io, fail_memory
from lsmkv_ext.table.format cimport FRAME_STORED, FRAME_TRAILER, frame_seal

cdef extern from * nogil:
    """
    #include <fcntl.h>
    #if defined(__linux__) && defined(SYNC_FILE_RANGE_WRITE)
    /* starts write-back early, so that the fsync at the end finds little to do; a hint, so errors are left to fsync */
    static inline void lsm_start_writeback(int fd, uint64_t from, uint64_t n) {
        (void)!sync_file_range(fd, (off_t)from, (off_t)n, SYNC_FILE_RANGE_WRITE);
    }
    #else
    static inline void lsm_start_writeback(int fd, uint64_t from, uint64_t n) { (void)fd; (void)from; (void)n; }
    #endif
    """
    void lsm_start_writeback(int fd, uint64_t offset, uint64_t n) noexcept

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef enum:
    OUT_BUFFER = 512 * 1024
    WRITEBACK_STEP = 4 << 20


cdef int output_open(TableOutput* o, const char* path, Status* st) noexcept nogil:
    cdef size_t n = strlen(path)
    cdef int err
    memset(o, 0, sizeof(TableOutput))
    o.fd = -1
    o.path = <char*>lsm_alloc(n + 1)
    if o.path == NULL or buf_reserve(&o.buf, OUT_BUFFER) != 0:
        output_free(o)
        return fail_memory(st, "table output")
    memcpy(o.path, path, n + 1)
    err = file_open(path, OPEN_CREATE, &o.fd)
    if err != 0:
        output_free(o)
        return fail_io(st, "creating a table", err)
    return ST_OK


cdef void output_free(TableOutput* o) noexcept nogil:
    buf_free(&o.buf)
    buf_free(&o.packed)
    compressor_free(&o.compressor)
    lsm_free(o.path)
    o.path = NULL
    o.fd = -1


cdef void output_abandon(TableOutput* o) noexcept nogil:
    if o.path != NULL:
        if o.fd >= 0:
            file_close(o.fd)
        unlink(o.path)
    output_free(o)


cdef int _write(TableOutput* o, const char* p, size_t n, Status* st) noexcept nogil:
    cdef int err = file_write(o.fd, p, n)
    if err != 0:
        return fail_io(st, "writing a table", err)
    o.written += n
    if o.written - o.started >= WRITEBACK_STEP:
        lsm_start_writeback(o.fd, o.started, o.written - o.started)
        o.started = o.written
    return ST_OK


cdef int _flush(TableOutput* o, Status* st) noexcept nogil:
    cdef int code = ST_OK
    if o.buf.len:
        code = _write(o, o.buf.data, o.buf.len, st)
        o.buf.len = 0
    return code


cdef int output_emit_direct(TableOutput* o, const char* p, size_t n, Status* st) noexcept nogil:
    # Buffered bytes come first.
    cdef int code = _flush(o, st)
    return _write(o, p, n, st) if code == ST_OK else code


cdef int output_emit(TableOutput* o, const char* p, size_t n, Status* st) noexcept nogil:
    cdef int code
    if n > OUT_BUFFER // 2:
        return output_emit_direct(o, p, n, st)
    if o.buf.len + n > OUT_BUFFER:
        code = _flush(o, st)
        if code != ST_OK:
            return code
    if buf_append(&o.buf, p, n) != 0:
        return fail_memory(st, "table output buffer")
    return ST_OK


cdef int _pack(TableOutput* o, const GrowBuf* raw, uint8_t* compression) noexcept nogil:
    """Compresses `raw` to o.packed. Returns the bytes, 0 if that saves too little, or COMPRESS_*. May change the codec."""
    cdef int n = <int>raw.len
    cdef int packed
    if buf_reserve(&o.packed, compressed_bound(n) + FRAME_TRAILER) != 0:
        return COMPRESS_NO_MEMORY
    packed = compress(&o.compressor, compression[0], raw.data, n, o.packed.data, n - n // 16)
    if packed == COMPRESS_BEYOND_RATIO:
        compression[0] = COMPRESSION_LZ4
        packed = compress(&o.compressor, COMPRESSION_LZ4, raw.data, n, o.packed.data, n - n // 16)
    return packed


cdef int output_emit_frame(TableOutput* o, GrowBuf* raw, int section, int compression, uint64_t* size, Status* st) noexcept nogil:
    cdef GrowBuf* payload = raw
    cdef uint8_t used = FRAME_STORED
    cdef uint8_t codec
    cdef size_t n = raw.len
    cdef int packed
    if n > BLOCK_MAX_RAW:
        return fail_argument(st, "table section too large")
    if compression and 0 < n <= COMPRESSION_MAX_RAW:
        codec = <uint8_t>compression
        packed = _pack(o, raw, &codec)
        if packed == COMPRESS_NO_MEMORY:
            return fail_memory(st, "compression buffer")
        if packed > 0:
            payload = &o.packed
            used = codec
            n = <size_t>packed
    if buf_reserve(raw, FRAME_TRAILER) != 0:
        return fail_memory(st, "block trailer")
    frame_seal(payload.data, n, <uint32_t>raw.len, used, section, output_offset(o))
    size[0] = n + FRAME_TRAILER
    return output_emit(o, payload.data, n + FRAME_TRAILER, st)


cdef int output_emit_zeros(TableOutput* o, uint64_t n, Status* st) noexcept nogil:
    cdef char zeros[4096]
    cdef int code = ST_OK
    memset(zeros, 0, sizeof(zeros))
    while code == ST_OK and n > sizeof(zeros):
        code = output_emit(o, zeros, sizeof(zeros), st)
        n -= sizeof(zeros)
    return output_emit(o, zeros, n, st) if code == ST_OK else code


cdef int output_close(TableOutput* o, Status* st) noexcept nogil:
    cdef int code = _flush(o, st)
    cdef int err
    if code != ST_OK:
        return code
    err = file_sync(o.fd)
    if err != 0:
        return fail_io(st, "fsync of a table", err)
    err = file_close(o.fd)
    o.fd = -1
    if err != 0:
        return fail_io(st, "closing a table", err)
    return ST_OK
