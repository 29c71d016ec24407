# Prefixes in a filter: a scan of a prefix skips tables whose filter holds no such prefix.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:                        # prefix_kind and its prefix_arg
    FILTER_PREFIX_NONE = 0
    FILTER_PREFIX_LENGTH = 1      # the first n bytes: n
    FILTER_PREFIX_SEPARATOR = 2   # up to and including a separator: its byte
    FILTER_PREFIX_LENGTHS = 3     # the first n bytes, for up to four n: a byte each, ascending, unused ones last and zero
    FILTER_MAX_PREFIXES = 4       # of one key

cdef inline uint8_t prefix_length(uint32_t prefix_arg, int i) noexcept nogil:
    """The i-th length of FILTER_PREFIX_LENGTHS; 0: there is none."""
    return <uint8_t>(prefix_arg >> 8 * i)


# Whether a filter may have this kind and argument.
cdef bint filter_prefix_valid(uint32_t prefix_kind, uint32_t prefix_arg) noexcept nogil
# The hashes of a key's prefixes, the shortest first. Returns how many it has. Prefixes are hashed under another seed than keys,
# so a prefix never answers for the key of the same bytes.
cdef int filter_prefix_hashes(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, uint64_t* out
) noexcept nogil
# The hash of the longest one, or 0 with *has = 0 if the key has none.
cdef uint64_t filter_prefix_hash(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, int* has
) noexcept nogil
