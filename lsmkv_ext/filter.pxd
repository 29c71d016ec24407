# The blocked Bloom filter: 512-bit blocks, k bits per key, all in one cache line. Byte grid: docs/format.md.
#
# A filter is borrowed memory (FilterC points at bits it does not own) plus the parameters to probe it. Only
# filter_decode decides whether stored bytes are a healthy filter; anything else leaves `usable` false, and an unusable filter
# answers "maybe" to everything.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    FILTER_HEADER_SIZE = 64
    FILTER_BLOCK_BYTES = 64
    FILTER_KIND_NONE = 0
    FILTER_KIND_BLOCKED = 1
    FILTER_HASH_XXH3 = 1
    # why a stored filter is not usable
    FILTER_OK = 0
    FILTER_ABSENT = 1
    FILTER_BAD_LENGTH = 2
    FILTER_BAD_CHECKSUM = 3
    FILTER_UNKNOWN = 4        # version, kind or hash
    FILTER_BAD_GEOMETRY = 5

ctypedef struct FilterC:
    const uint8_t* bits       # borrowed, 64-byte aligned
    uint64_t n_blocks
    uint64_t n_keys           # keys (and prefixes) added
    uint64_t seed
    uint32_t millibits        # bits per key x 1000, as asked for
    uint32_t k
    uint32_t level            # the level it was built for
    uint32_t prefix_kind      # 0 none, 1 first n bytes, 2 up to and including a separator byte
    uint32_t prefix_arg       # n, or the separator
    int usable
    int problem               # FILTER_OK, or why not usable

cdef uint64_t filter_blocks_for(uint64_t n_keys, uint32_t millibits) noexcept nogil
cdef uint32_t filter_k_for(uint32_t millibits) noexcept nogil
# Sets the bits of n hashes in `bits` (n_blocks * 64 bytes, zeroed by the caller), prefetching ahead.
cdef void filter_add_many(uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n) noexcept nogil
# How many of the n hashes answer "no": 0 for a correct filter. The check before a table is published.
cdef size_t filter_count_missing(const FilterC* f, const uint64_t* hashes, size_t n) noexcept nogil
# out[i] = 1 for maybe, 0 for no; prefetched, SIMD where the CPU has it.
cdef void filter_probe_many(const FilterC* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept nogil
# Header <-> struct. decode fills *f (usable/problem) from FILTER_HEADER_SIZE header bytes and the bits; it never fails otherwise.
cdef void filter_encode_header(const FilterC* f, char* out) noexcept nogil
cdef void filter_decode(const char* header, size_t header_size, const uint8_t* bits, uint64_t bits_size, FilterC* f) noexcept nogil
# Hash of a key's prefix as added by a prefix extractor, or 0 with *has = 0 where the key is outside its domain.
cdef uint64_t filter_prefix_hash(uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, int* has) noexcept nogil
cdef double filter_fill_ratio(const FilterC* f) noexcept nogil
# inline here (body in this file): one cache line, no call
#   cdef inline bint filter_probe(const FilterC* f, uint64_t hash) noexcept nogil     (an unusable filter: True)
#   cdef inline void filter_prefetch(const FilterC* f, uint64_t hash) noexcept nogil
