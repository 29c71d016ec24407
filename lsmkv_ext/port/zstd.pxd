# zstd, from the C functions of an extension module: the `_zstd` of the standard library (Python 3.14 and later), or that of the
# package backports.zstd. Its file is located at import and loaded at the first use, without the GIL. Where a build hides the
# functions, fallbacks call the Python API under the GIL.
#
# Frames are single, without a dictionary, and state their content size (docs/format.md, "Frame").

from libc.stdint cimport uint64_t

cdef enum:
    ZSTD_LEVEL = 3                 # docs/options.md has the figures
    ZSTD_MAX_WINDOW = 48 << 20
    ZSTD_DAMAGED = -1
    ZSTD_NO_MEMORY = -2

# Whether zstd can be used; loads it if it was not tried yet. No other function may be called before.
cdef bint zstd_ready() noexcept nogil
# What to do if it cannot.
cdef const char* zstd_missing() noexcept nogil


ctypedef struct ZstdEncoder:       # a compression context, made at the first use. Zero it; zstd_encoder_free. One thread.
    void* context

# Returns the bytes written, 0 if they do not fit, or ZSTD_NO_MEMORY.
cdef int zstd_compress(ZstdEncoder* e, int level, const char* src, int n, char* dst, int capacity) noexcept nogil
cdef void zstd_encoder_free(ZstdEncoder* e) noexcept nogil
# Whether src[:n] can be a frame of `raw` bytes. Needs no loaded zstd. Returns NULL, or what is wrong.
cdef const char* zstd_check(const char* src, size_t n, uint64_t raw) noexcept nogil
# Decompresses a checked frame to exactly `raw` bytes. Returns 0, ZSTD_DAMAGED or ZSTD_NO_MEMORY.
cdef int zstd_decompress(const char* src, int n, char* dst, int raw) noexcept nogil


cdef inline int zstd_bound(int n) noexcept nogil:
    return n + (n >> 8) + 512
