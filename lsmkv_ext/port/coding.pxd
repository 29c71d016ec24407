# Little-endian fixed and LEB128 variable integers. Decoders take the end of the buffer and return NULL rather than read past
# it.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef inline uint32_t get_u32(const void* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t get_u64(const void* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint16_t get_u16(const void* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


cdef inline void put_u32(void* p, uint32_t v) noexcept nogil:
    memcpy(p, &v, 4)


cdef inline void put_u64(void* p, uint64_t v) noexcept nogil:
    memcpy(p, &v, 8)


cdef inline char* put_varint(char* p, uint64_t v) noexcept nogil:
    """Writes at most 10 bytes; returns the byte after the last."""
    while v >= 0x80:
        p[0] = <char>(<uint8_t>(v | 0x80))
        p += 1
        v >>= 7
    p[0] = <char>(<uint8_t>v)
    return p + 1


cdef inline const char* get_varint(const char* p, const char* end, uint64_t* out) noexcept nogil:
    """Returns the byte after the number, or NULL if the number runs past `end` or beyond 64 bits."""
    cdef uint64_t result = 0
    cdef uint64_t byte
    cdef int shift = 0
    if p < end and not (<uint8_t>p[0] & 0x80):
        out[0] = <uint8_t>p[0]
        return p + 1
    while p < end and shift < 64:
        byte = <uint8_t>p[0]
        p += 1
        if shift == 63 and byte > 1:
            return NULL
        result |= (byte & 0x7F) << shift
        if not (byte & 0x80):
            out[0] = result
            return p
        shift += 7
    return NULL


cdef inline int varint_size(uint64_t v) noexcept nogil:
    cdef int n = 1
    while v >= 0x80:
        v >>= 7
        n += 1
    return n


cdef inline bint all_zero(const char* p, size_t n) noexcept nogil:
    # The first byte is zero and each equals the one before it: memcmp is many times faster than a loop over bytes.
    return n == 0 or (p[0] == 0 and memcmp(p, p + 1, n - 1) == 0)
