"""Hashes of key prefixes."""

from libc.string cimport memchr

from lsmkv_ext.port.codecs cimport xxh3

cdef uint64_t PREFIX_SEED = 0x7072656669786573ULL
cdef const char* _EMPTY = ""


cdef bint filter_prefix_valid(uint32_t prefix_kind, uint32_t prefix_arg) noexcept nogil:
    cdef int i
    if prefix_kind == FILTER_PREFIX_SEPARATOR:
        return prefix_arg <= 255
    if prefix_kind == FILTER_PREFIX_LENGTHS:
        for i in range(1, FILTER_MAX_PREFIXES):
            if prefix_length(prefix_arg, i) != 0 and prefix_length(prefix_arg, i) <= prefix_length(prefix_arg, i - 1):
                return False
            if prefix_length(prefix_arg, i) != 0 and prefix_length(prefix_arg, i - 1) == 0:
                return False
        return prefix_length(prefix_arg, 0) != 0
    return prefix_kind <= FILTER_PREFIX_LENGTH


cdef int _lengths(uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, size_t* out) noexcept nogil:
    """The lengths of the key's prefixes, ascending."""
    cdef const char* end
    cdef int i = 0
    if prefix_kind == FILTER_PREFIX_LENGTHS:
        while i < FILTER_MAX_PREFIXES and prefix_length(prefix_arg, i) != 0 and n >= prefix_length(prefix_arg, i):
            out[i] = prefix_length(prefix_arg, i)
            i += 1
        return i
    if prefix_kind == FILTER_PREFIX_LENGTH and n >= prefix_arg:
        out[0] = prefix_arg
        return 1
    if prefix_kind == FILTER_PREFIX_SEPARATOR and n:
        end = <const char*>memchr(key, <int>prefix_arg, n)
        if end != NULL:
            out[0] = <size_t>(end - key) + 1
            return 1
    return 0


cdef int filter_prefix_hashes(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, uint64_t* out
) noexcept nogil:
    cdef size_t lengths[FILTER_MAX_PREFIXES]
    cdef int count = _lengths(prefix_kind, prefix_arg, key, n, lengths)
    cdef int i
    for i in range(count):
        out[i] = xxh3(key, lengths[i], seed ^ PREFIX_SEED)
    return count


cdef uint64_t filter_prefix_hash(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, int* has
) noexcept nogil:
    cdef size_t lengths[FILTER_MAX_PREFIXES]
    cdef int count = _lengths(prefix_kind, prefix_arg, key, n, lengths)
    has[0] = count != 0
    return xxh3(key, lengths[count - 1], seed ^ PREFIX_SEED) if count else 0


def prefix_hash(uint32_t prefix_kind, uint32_t prefix_arg, const unsigned char[::1] key not None, uint64_t seed=0):
    """Return the hash under which a key's longest prefix is added, or None if the key has no prefix."""
    cdef int has = 0
    cdef size_t n = <size_t>key.shape[0]
    cdef uint64_t h = filter_prefix_hash(prefix_kind, prefix_arg, <const char*>&key[0] if n else _EMPTY, n, seed, &has)
    return h if has else None


def prefix_hashes(uint32_t prefix_kind, uint32_t prefix_arg, const unsigned char[::1] key not None, uint64_t seed=0):
    """Return the hashes under which a key's prefixes are added, the shortest first."""
    cdef uint64_t hashes[FILTER_MAX_PREFIXES]
    cdef size_t n = <size_t>key.shape[0]
    cdef int count = filter_prefix_hashes(prefix_kind, prefix_arg, <const char*>&key[0] if n else _EMPTY, n, seed, hashes)
    return [hashes[i] for i in range(count)]
