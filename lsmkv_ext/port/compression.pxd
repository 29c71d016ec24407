# Compresses and decompresses the sections of tables and the chunks of values. The numbers are those of both formats
# (docs/format.md, "Frame").

from libc.stdint cimport uint64_t

from lsmkv_ext.port.codecs cimport lz4_bound
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.port.zstd cimport ZstdEncoder, zstd_bound

cdef enum:
    COMPRESSION_NONE = 0
    COMPRESSION_LZ4 = 1
    COMPRESSION_ZSTD = 2
    COMPRESSION_MAX_RAW = 48 << 20     # more is stored: a few hostile bytes must not claim a gigabyte
    COMPRESSION_MAX_RATIO = 255        # likewise; LZ4 cannot expand by more
    COMPRESS_NO_MEMORY = -1
    COMPRESS_BEYOND_RATIO = -2         # zstd compressed too well: no reader would take it


ctypedef struct Compressor:            # the contexts of one writer. Zero it; compressor_free.
    ZstdEncoder zstd
    int zstd_level                     # 0: ZSTD_LEVEL


cdef inline int compressed_bound(int n) noexcept nogil:
    """Room for `compress`, with every codec."""
    return max(lz4_bound(n), zstd_bound(n))


# Compresses src[:n], 0 < n <= COMPRESSION_MAX_RAW, to dst, which has compressed_bound(n) bytes. `codec` is LZ4 or zstd, which is
# loaded. Returns the bytes, 0 if they are not fewer than `limit`, or COMPRESS_*.
cdef int compress(Compressor* c, int codec, const char* src, int n, char* dst, int limit) noexcept nogil
cdef void compressor_free(Compressor* c) noexcept nogil


cdef inline bint sizes_possible(uint64_t packed, uint64_t raw) noexcept nogil:
    """Whether `packed` bytes can be a compressed piece of `raw` bytes: then `raw` is safe to allocate."""
    return raw <= COMPRESSION_MAX_RAW and raw <= COMPRESSION_MAX_RATIO * packed


# Checks a compressed piece before memory is allocated for it. Returns NULL, or what is wrong.
cdef const char* compressed_check(int codec, const char* src, size_t n, uint64_t raw) noexcept nogil
# Decompresses a checked piece to exactly `raw` bytes. On failure *st is ST_CORRUPT with `file_number` and `offset`, ST_NO_MEMORY,
# or ST_FORMAT if the codec is not installed.
cdef int decompress(int codec, const char* src, size_t n, char* dst, size_t raw, uint64_t file_number, uint64_t offset,
                    Status* st) noexcept nogil
