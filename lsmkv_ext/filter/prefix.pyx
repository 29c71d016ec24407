"""Hashes of key prefixes."""

from libc.string cimport memchr

from lsmkv_ext.port.codecs cimport xxh3

cdef uint64_t PREFIX_SEED = 0x7072656669786573ULL
cdef const char* _EMPTY = ""


cdef uint64_t filter_prefix_hash(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, int* has
) noexcept nogil:
    cdef const char* end
    has[0] = 0
    if prefix_kind == FILTER_PREFIX_LENGTH and n >= prefix_arg:
        has[0] = 1
        return xxh3(key, prefix_arg, seed ^ PREFIX_SEED)
    if prefix_kind == FILTER_PREFIX_SEPARATOR and n:
        end = <const char*>memchr(key, <int>prefix_arg, n)
        if end != NULL:
            has[0] = 1
            return xxh3(key, <size_t>(end - key) + 1, seed ^ PREFIX_SEED)
    return 0


def prefix_hash(uint32_t prefix_kind, uint32_t prefix_arg, const unsigned char[::1] key not None, uint64_t seed=0):
    """Return the hash under which a key's prefix is added, or None if the key has no such prefix."""
    cdef int has = 0
    cdef size_t n = <size_t>key.shape[0]
    cdef uint64_t h = filter_prefix_hash(prefix_kind, prefix_arg, <const char*>&key[0] if n else _EMPTY, n, seed, &has)
    return h if has else None
