# Arrays that grow. GrowBuf is one of bytes, embedded in its owner; zeroed memory is an empty buffer.

from libc.string cimport memcpy

from lsmkv_ext.port.alloc cimport lsm_free, lsm_resize

ctypedef struct GrowBuf:
    char* data
    size_t len
    size_t cap


cdef inline int array_reserve(void** items, size_t* capacity, size_t n, size_t item_size) noexcept nogil:
    """Makes room for n items; grows by half at least. Returns 0, or -1 if out of memory (nothing changed). The owner frees the
    array with lsm_free."""
    cdef size_t grown
    cdef void* moved
    if capacity[0] >= n:
        return 0
    grown = capacity[0] + capacity[0] // 2 + 256 // item_size + 1
    if grown < n:
        grown = n
    if grown > (<size_t>-1) // item_size:
        return -1
    moved = lsm_resize(items[0], grown * item_size)
    if moved == NULL:
        return -1
    items[0] = moved
    capacity[0] = grown
    return 0


cdef inline int buf_reserve(GrowBuf* b, size_t extra) noexcept nogil:
    """Makes room for `extra` more bytes. Returns 0, or -1 if out of memory (the buffer is unchanged)."""
    if b.cap - b.len >= extra:
        return 0
    if extra > (<size_t>-1) - b.len:
        return -1
    return array_reserve(<void**>&b.data, &b.cap, b.len + extra, 1)


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
