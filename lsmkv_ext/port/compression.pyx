from array import array

from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.codecs cimport lz4_compress, lz4_decompress
from lsmkv_ext.port.status cimport ST_OK, fail_corrupt, fail_format, fail_memory, raise_status, status_clear
from lsmkv_ext.port.zstd cimport (
    ZSTD_LEVEL,
    ZSTD_NO_MEMORY,
    zstd_check,
    zstd_compress,
    zstd_decompress,
    zstd_encoder_free,
    zstd_missing,
    zstd_ready,
)
from lsmkv_ext.port import zstd

cdef extern from * nogil:
    """
    #include <time.h>
    static inline uint64_t lsm_thread_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
    }
    """
    uint64_t lsm_thread_ns() noexcept

CODECS = {None: COMPRESSION_NONE, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}
cdef dict _NAMES = {number: name for name, number in CODECS.items()}


def codec_name(number):
    """Return the name of a codec as options have it, "unknown" for a wrong number."""
    return _NAMES.get(number, "unknown")


cdef int compress(Compressor* c, int codec, const char* src, int n, char* dst, int limit) noexcept nogil:
    cdef int got
    if codec == COMPRESSION_ZSTD:
        got = zstd_compress(&c.zstd, c.zstd_level or ZSTD_LEVEL, src, n, dst, compressed_bound(n))
    else:
        got = lz4_compress(src, dst, n, compressed_bound(n))
    if got == ZSTD_NO_MEMORY:
        return COMPRESS_NO_MEMORY
    if got <= 0 or got >= limit:
        return 0
    return got if sizes_possible(got, n) else COMPRESS_BEYOND_RATIO


cdef void compressor_free(Compressor* c) noexcept nogil:
    zstd_encoder_free(&c.zstd)


cdef const char* compressed_check(int codec, const char* src, size_t n, uint64_t raw) noexcept nogil:
    if not sizes_possible(n, raw):
        return "impossible size of compressed bytes"
    return zstd_check(src, n, raw) if codec == COMPRESSION_ZSTD else NULL


cdef int decompress(int codec, const char* src, size_t n, char* dst, size_t raw, uint64_t file_number, uint64_t offset,
                    Status* st) noexcept nogil:
    cdef int code
    if codec != COMPRESSION_ZSTD:
        if lz4_decompress(src, dst, <int>n, <int>raw) != <int>raw:
            return fail_corrupt(st, "decompression failed", file_number, offset)
        return ST_OK
    if not zstd_ready():
        return fail_format(st, zstd_missing(), file_number)
    code = zstd_decompress(src, <int>n, dst, <int>raw)
    if code == ZSTD_NO_MEMORY:
        return fail_memory(st, "zstd")
    return fail_corrupt(st, "decompression failed", file_number, offset) if code else ST_OK


# --- measure ---------------------------------------------------------------------------------------------------------

ctypedef struct Measured:
    uint64_t stored             # bytes, without trailers
    uint64_t compress_ns
    uint64_t decompress_ns


cdef int _measure(Compressor* c, int codec, const char* data, const uint32_t* sizes, size_t n, char* packed, uint32_t* stored,
                  char* raw, Measured* m, Status* st) noexcept nogil:
    """Compresses the n pieces in `data` to `packed` and then decompresses each to `raw`. `stored` gets their sizes."""
    cdef size_t i, at = 0
    cdef int size, got
    cdef uint64_t began
    if codec and n and sizes[0]:
        compress(c, codec, data, <int>sizes[0], packed, <int>sizes[0])      # makes the context
    began = lsm_thread_ns()
    for i in range(n):
        size = <int>sizes[i]
        got = compress(c, codec, data + at, size, packed + m.stored, size - size // 16) if codec and size else 0
        if got == COMPRESS_NO_MEMORY:
            return fail_memory(st, "zstd")
        if got <= 0:
            memcpy(packed + m.stored, data + at, size)
            got = size
        stored[i] = <uint32_t>got
        m.stored += stored[i]
        at += size
    m.compress_ns = lsm_thread_ns() - began
    began = lsm_thread_ns()
    for i in range(n):
        if stored[i] == sizes[i]:
            memcpy(raw, packed, sizes[i])
        elif decompress(codec, packed, stored[i], raw, sizes[i], 0, 0, st) != ST_OK:
            return st.code
        packed += stored[i]
    m.decompress_ns = lsm_thread_ns() - began
    return ST_OK


def measure(codec, bytes data not None, sizes, int level=0):
    """Compress pieces of the given sizes, one after the other in `data`, and decompress them again. `level` is that of zstd.

    Return (stored bytes, nanoseconds to compress, nanoseconds to decompress), in processor time of this thread.
    """
    cdef Compressor c
    cdef Measured m
    cdef Status st
    cdef int number = CODECS[codec]
    cdef uint32_t[::1] lengths = array("I", [*sizes, 0])
    cdef uint32_t[::1] stored = array("I", bytes(4 * lengths.shape[0]))
    cdef size_t n = <size_t>lengths.shape[0] - 1
    cdef size_t longest = max(sizes, default=0)
    cdef const char* text = data
    cdef char* packed
    cdef char* raw
    if sum(sizes) != len(data) or longest > COMPRESSION_MAX_RAW:
        raise ValueError("the sizes do not add up to the data")
    if number == COMPRESSION_ZSTD:
        zstd.require()
    memset(&c, 0, sizeof(Compressor))
    memset(&m, 0, sizeof(Measured))
    c.zstd_level = level
    status_clear(&st)
    packed = <char*>lsm_alloc(len(data) + compressed_bound(<int>longest))
    raw = <char*>lsm_alloc(longest + 1)
    if packed == NULL or raw == NULL:
        fail_memory(&st, "sample")
    else:
        memset(packed, 0, len(data) + compressed_bound(<int>longest))      # the first touch of the pages is not measured
        with nogil:
            _measure(&c, number, text, &lengths[0], n, packed, &stored[0], raw, &m, &st)
    compressor_free(&c)
    lsm_free(packed)
    lsm_free(raw)
    raise_status(&st, None)
    return m.stored, m.compress_ns, m.decompress_ns
