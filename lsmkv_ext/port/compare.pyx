"""Key order."""


cpdef bytes prefix_end(bytes prefix):
    """Return the smallest key greater than every key with this prefix, or None if there is none (empty or all 0xff)."""
    cdef Py_ssize_t n = len(prefix)
    cdef const unsigned char* p = prefix
    while n and p[n - 1] == 0xFF:
        n -= 1
    if n == 0:
        return None
    return prefix[:n - 1] + bytes([p[n - 1] + 1])
