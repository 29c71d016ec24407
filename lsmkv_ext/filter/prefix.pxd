# Prefixes in a filter: a scan of a prefix skips tables whose filter holds no such prefix.

from libc.stdint cimport uint32_t, uint64_t

cdef enum:                        # prefix_kind and its prefix_arg
    FILTER_PREFIX_NONE = 0
    FILTER_PREFIX_LENGTH = 1      # the first n bytes: n
    FILTER_PREFIX_SEPARATOR = 2   # up to and including a separator: its byte

# Hash of a key's prefix, or 0 with *has = 0 if the key has none. Prefixes are hashed under another seed than keys, so a
# prefix never answers for the key of the same bytes.
cdef uint64_t filter_prefix_hash(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, int* has
) noexcept nogil
