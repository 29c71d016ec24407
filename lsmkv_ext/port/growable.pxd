# A byte buffer that grows; inline, owned by whoever embeds it. Zeroed memory is an empty buffer.

from libc.string cimport memcpy

from lsmkv_ext.port.alloc cimport lsm_free, lsm_resize

ctypedef struct GrowBuf:
    char* data
    size_t len
    size_t cap


cdef inline int buf_reserve(GrowBuf* b, size_t extra) noexcept nogil:
    """Room for `extra` more bytes; 0, or -1 without memory (the buffer is unchanged)."""
    cdef size_t want, cap
    cdef char* moved
    if b.cap - b.len >= extra:
        return 0
    want = b.len + extra
    cap = b.cap + b.cap // 2 + 256
    if cap < want:
        cap = want
    moved = <char*>lsm_resize(b.data, cap)
    if moved == NULL:
        return -1
    b.data = moved
    b.cap = cap
    return 0


cdef inline int buf_append(GrowBuf* b, const void* p, size_t n) noexcept nogil:
    if buf_reserve(b, n) != 0:
        return -1
    if n != 0:
        memcpy(b.data + b.len, p, n)
    b.len += n
    return 0


cdef inline int buf_assign(GrowBuf* b, const void* p, size_t n) noexcept nogil:
    b.len = 0
    return buf_append(b, p, n)


cdef inline void buf_free(GrowBuf* b) noexcept nogil:
    lsm_free(b.data)
    b.data = NULL
    b.len = 0
    b.cap = 0
