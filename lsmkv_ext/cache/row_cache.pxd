# Values of keys that are asked for again and again, as the Python objects that go to the caller: no search, no copy.
# What a row says holds for the tables of one generation of the tree; memtables are asked first. All under the GIL.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.port.atomics cimport lsm_prefetch

cdef enum:
    WAYS = 2                    # row_cache to a set

ctypedef struct Row:            # two to a cache line, which is a set
    uint64_t hash
    void* key                   # bytes objects, owned; NULL: the hash was only seen
    void* value
    uint32_t generation
    uint32_t credit             # how often another key may come by before it takes the place

ctypedef struct RowCacheC:
    Row* row_cache                   # NULL: none are kept
    uint64_t set_mask
    size_t used                 # bytes of the row_cache, and of the keys and values held
    size_t limit
    uint32_t left               # lookups until it is decided again whether asking pays
    uint32_t hits               # among those since the last decision
    bint bypassed                # not asked: hardly any key came twice

# Whether to ask for the next lookup. Where keys do not come again, the row_cache are tried only now and then.
cdef inline bint row_cache_worth_probing(RowCacheC* r) noexcept:
    if r.left == 0:
        row_cache_decide(r)
    r.left -= 1
    return not r.bypassed

# A hash's own set, or with side = 1 its neighbour, which takes in what does not find room there.
cdef inline Row* row_cache_set(const RowCacheC* r, uint64_t hash, int side) noexcept:
    return &r.row_cache[((hash & r.set_mask) ^ side) * WAYS]

# Ahead of a find, so that its cache misses and the memtable's overlap.
cdef inline void row_cache_prefetch(const RowCacheC* r, uint64_t hash) noexcept:
    if r.row_cache != NULL and not r.bypassed:
        lsm_prefetch(row_cache_set(r, hash, 0))
        lsm_prefetch(row_cache_set(r, hash, 1))

cdef void row_cache_decide(RowCacheC* r) noexcept
cdef int row_cache_resize(RowCacheC* r, size_t limit) except -1
cdef void row_cache_free(RowCacheC* r) noexcept
# The value, borrowed, or NULL.
cdef void* row_cache_find(RowCacheC* r, uint64_t hash, const char* key, size_t klen, uint32_t generation) noexcept
# A value was looked up: keeps it where its key was seen before and the place is not better used.
cdef int row_cache_offer(RowCacheC* r, uint64_t hash, bytes key, bytes value, uint32_t generation) noexcept
