"""UTF-8 in columns."""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef bint _is_ascii(const char* p, size_t n) noexcept nogil:
    cdef uint64_t word
    cdef uint64_t seen = 0
    cdef size_t i = 0
    while i + 8 <= n:
        memcpy(&word, p + i, 8)
        seen |= word
        i += 8
    while i < n:
        seen |= <uint8_t>p[i]
        i += 1
    return not seen & <uint64_t>0x8080808080808080


cdef inline bint _continues(uint8_t c) noexcept nogil:
    return c & 0xC0 == 0x80


cdef inline size_t _character(const uint8_t* p, size_t n) noexcept nogil:
    """Bytes of the character that p begins with. 0 if it is none: overlong, a surrogate, or above U+10FFFF."""
    cdef uint8_t c = p[0]
    if c < 0x80:
        return 1
    if n < 2 or not _continues(p[1]):
        return 0
    if 0xC2 <= c <= 0xDF:
        return 2
    if n < 3 or not _continues(p[2]):
        return 0
    if c & 0xF0 == 0xE0:
        return 0 if (c == 0xE0 and p[1] < 0xA0) or (c == 0xED and p[1] > 0x9F) else 3
    if n < 4 or not _continues(p[3]) or c < 0xF0 or c > 0xF4:
        return 0
    return 0 if (c == 0xF0 and p[1] < 0x90) or (c == 0xF4 and p[1] > 0x8F) else 4


cdef bint _is_utf8(const char* p, size_t n) noexcept nogil:
    cdef size_t at = 0, taken
    while at < n:
        taken = _character(<const uint8_t*>p + at, n - at)
        if taken == 0:
            return False
        at += taken
    return True


cdef inline int64_t _offset(const ColumnBuilder* b, int64_t i) noexcept nogil:
    return (<const int64_t*>b.offsets)[i] if b.wide else (<const int32_t*>b.offsets)[i]


cdef int64_t utf8_bad_row(const ColumnBuilder* b) noexcept nogil:
    cdef int64_t row
    # A character may not span rows, but among ASCII none does.
    if _is_ascii(b.data, b.used):
        return -1
    for row in range(b.rows):
        if not _is_utf8(b.data + _offset(b, row), <size_t>(_offset(b, row + 1) - _offset(b, row))):
            return row
    return -1
