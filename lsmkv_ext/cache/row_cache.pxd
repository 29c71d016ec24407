# The row cache: keys that are read repeatedly and their values, as the bytes objects returned to callers. A hit costs no search
# and no copy.
#
# Lookups consult it after the memtables. A row is valid for one generation of a tree's tables. The trees of a database share the
# cache and its generations, so a generation is that of one tree. Two rows fill a cache line, which is a set; a key may be in its
# own set or in the neighbouring one.
#
# GIL-protected: all of RowCacheC and its rows

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.port.atomics cimport lsm_prefetch

cdef enum:
    WAYS = 2                    # rows in a set

ctypedef struct Row:
    uint64_t hash
    void* key                   # bytes objects, owned; NULL: only the hash is known
    void* value
    uint32_t generation
    uint32_t credit             # other keys that it turns away before one replaces it

ctypedef struct RowCacheC:
    Row* sets                   # owned; NULL: no row cache
    uint64_t set_mask
    size_t used                 # bytes of the sets, keys and values
    size_t limit
    uint32_t left               # lookups until row_cache_decide
    uint32_t hits               # since row_cache_decide
    bint bypassed               # few keys repeat, so lookups do not probe


cdef inline bint row_cache_worth_probing(RowCacheC* r) noexcept:
    """Whether the next lookup should probe. Where few keys repeat, only trials probe, one lookup in four."""
    if r.left == 0:
        row_cache_decide(r)
    r.left -= 1
    return not r.bypassed


cdef inline Row* row_cache_set(const RowCacheC* r, uint64_t hash, int side) noexcept:
    """The set of a hash, or with side = 1 its neighbour, which takes the overflow."""
    return &r.sets[((hash & r.set_mask) ^ side) * WAYS]


cdef inline void row_cache_prefetch(const RowCacheC* r, uint64_t hash) noexcept:
    """Before row_cache_find: its cache misses and the memtable's overlap."""
    if r.sets != NULL and not r.bypassed:
        lsm_prefetch(row_cache_set(r, hash, 0))
        lsm_prefetch(row_cache_set(r, hash, 1))


cdef void row_cache_decide(RowCacheC* r) noexcept
cdef int row_cache_resize(RowCacheC* r, size_t limit) except -1         # empties it; a small limit turns it off
cdef void row_cache_free(RowCacheC* r) noexcept
# The value, borrowed, or NULL.
cdef void* row_cache_find(RowCacheC* r, uint64_t hash, const char* key, size_t klen, uint32_t generation) noexcept
# After a lookup found the value: keeps it if its hash was seen before, otherwise notes the hash. May do neither: see `credit`.
cdef int row_cache_offer(RowCacheC* r, uint64_t hash, bytes key, bytes value, uint32_t generation) noexcept


cdef class RowCache:
    cdef RowCacheC c
    cdef uint32_t generations       # given out so far
