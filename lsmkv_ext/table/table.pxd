# An open SSTable: decoded index, resident filter, cached blocks hanging off the index. Byte grid: docs/format.md,
# "SSTable"; the constants shared with the writer are in table_format.pxd.
#
# A TableC is immutable after open except for the cached block pointers and the descriptor. Its owner is the Python
# class Table; nogil code borrows the pointer and somebody up the stack (a view, a job, a cursor) holds the object.
#
# How reads fail: ST_CORRUPT names the offset in this table's file. A damaged filter is no error: filter.usable is 0.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.block.block cimport BlockC, BlockIter, Entry
from lsmkv_ext.cache.block_cache cimport BlockCache, CacheC
from lsmkv_ext.cache.fd_cache cimport FdHandle, FdCache, FdCacheC
from lsmkv_ext.filter.kernel cimport FilterC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.port.coding cimport get_varint
from lsmkv_ext.table.format cimport RangeTombstone
from lsmkv_ext.port.atomics cimport lsm_load_ptr, lsm_prefetch

ctypedef struct ReadContext:       # one per operation: says how to read, collects what happened. Zero it, then set.
    bint gil_held                  # caller holds the GIL: it is let go around the disk read only
    bint fill_cache
    bint scan                      # new blocks go to probation; TableIter reads ahead
    bint compaction                # TableIter: large reads, the cache is neither asked nor filled
    uint64_t cache_hits            # blocks
    uint64_t disk_reads            # preads
    uint64_t disk_bytes
    uint64_t disk_ns
    uint64_t decompressed          # raw bytes of blocks decoded

cdef enum:
    INDEX_FANOUT = 8
    INDEX_MAX_LEVELS = 12

ctypedef struct TableC:
    # the first lines: what a get reads
    uint32_t n_blocks
    uint32_t n_levels              # of the prefix tree
    uint64_t max_prefix            # of the last separator
    size_t common_len              # bytes shared by all keys of the table, cut off before the 8-byte prefixes
    char* common                   # owned
    uint64_t* levels[INDEX_MAX_LEVELS]   # [0] one prefix per block, padded to INDEX_FANOUT; [l+1] last of each group
    BlockC** blocks                # owned array; cached block or NULL (acquire load)
    uint64_t* sep_at               # n_blocks + 1 offsets into seps: last key of block i <= separator i < first of i + 1
    char* seps
    uint64_t* offsets              # n_blocks + 1: block i is file bytes offsets[i] .. offsets[i + 1] with its trailer
    uint64_t global_seq            # not 0: every entry counts as having this sequence number (ingested tables)
    FilterC filter
    CacheC* cache                  # borrowed; NULL = no cache
    FdCacheC* fds                   # borrowed; NULL = own descriptor
    FdHandle handle
    uint64_t number
    uint64_t file_size
    uint64_t seed                  # of the hashes in filter and tags
    uint64_t n_entries, n_deletes
    uint64_t min_seq, max_seq      # as stored; with global_seq both are that
    char* smallest                 # owned; over entries and range tombstones
    size_t smallest_len
    char* largest
    size_t largest_len
    bint largest_exclusive         # largest is the stop of a range tombstone, no key
    uint32_t n_range_tombstones
    char* range_bytes              # owned; packed (range_unpack), sorted by start, then newest first
    size_t range_len
    uint64_t range_base            # the smallest of their sequence numbers
    bint ranges_overlap            # as only a table that came from elsewhere has them; flushes and compactions flatten theirs
    uint32_t* range_places         # owned; where in them every 2^range_shift-th begins
    uint32_t range_shift
    void* filter_alloc             # owned; filter.bits points into it
    uint64_t filter_size           # bytes of bits
    uint64_t memory                # resident: index, filter, range tombstones
    uint64_t room                  # what opening may still allocate: a hostile file gets its size + OPEN_ALLOWANCE
    bint charged                   # memory is reserved in the cache's budget
    uint64_t wasted                # point reads that found nothing here; a hint for compaction, an update may be lost
    # sections in the file
    uint64_t data_end, index_at, index_size, filter_at, ranges_at, ranges_size, props_at, props_size
    char* props                    # owned; checked raw properties
    size_t props_len
    char filter_header[64]

ctypedef struct TableIter:         # table_iter_init; moves return ST_OK (look at valid) or the code in status
    bint valid
    Entry entry                    # until the next move
    Status status
    TableC* t                      # borrowed
    ReadContext* rc                # borrowed; gil_held may change between calls
    BlockC* block                  # pinned
    uint32_t index                 # of that block
    BlockIter it
    uint64_t window                # bytes of the next read
    uint32_t in_sequence           # blocks entered one after the other since the last jump
    char* ahead                    # owned: bytes of the file from ahead_at
    size_t ahead_len, ahead_cap
    uint64_t ahead_at
    uint32_t last_miss             # block index of the last disk read; adjacent ones grow the window


cdef inline const char* range_unpack(const char* p, const char* end, uint64_t base, RangeTombstone* r) noexcept nogil:
    """A range tombstone of an open table; *r holds the one before it. Returns the byte behind it, or NULL where these are none.

    varint start length + 1, or 0: it starts where the one before it ends, as what was flattened mostly does; varint stop length;
    varint sequence number - base; start, if there is a length; stop."""
    cdef uint64_t start_len, stop_len, seq
    p = get_varint(p, end, &start_len)
    if p != NULL:
        p = get_varint(p, end, &stop_len)
    if p != NULL:
        p = get_varint(p, end, &seq)
    if p == NULL or start_len > <uint64_t>(end - p) or stop_len > <uint64_t>(end - p) - (start_len - 1 if start_len else 0):
        return NULL
    if start_len == 0:
        r.start = r.stop
        r.start_len = r.stop_len
    else:
        r.start = p
        r.start_len = start_len - 1
        p += start_len - 1
    r.stop = p
    r.stop_len = stop_len
    r.seq = base + seq
    return p + stop_len


ctypedef struct RangeWalk:         # over a table's range tombstones, in their order
    const char* p
    const char* end
    uint64_t base
    uint64_t global_seq
    RangeTombstone last


cdef inline void range_walk_init(RangeWalk* w, const TableC* t) noexcept nogil:
    w.p = t.range_bytes
    w.end = t.range_bytes + t.range_len
    w.base = t.range_base
    w.global_seq = t.global_seq
    w.last.stop = NULL
    w.last.stop_len = 0


cdef inline bint range_walk_next(RangeWalk* w, RangeTombstone* out) noexcept nogil:
    """False behind the last one. The keys are borrowed from the table."""
    if w.p == w.end:
        return False
    w.p = range_unpack(w.p, w.end, w.base, &w.last)
    if w.p == NULL:                # never: they were packed when the table was opened
        w.p = w.end
        return False
    out[0] = w.last
    if w.global_seq:
        out.seq = w.global_seq
    return True


# First block whose separator >= key; n_blocks = none. It may still hold no key >= key: then the next one's first is it.
cdef uint32_t table_find_block(const TableC* t, const char* key, size_t klen) noexcept nogil


cdef inline BlockC* table_peek_block(TableC* t, uint32_t i) noexcept nogil:
    """Cached or NULL; not pinned, so only with the GIL held and until it is let go (table_read_block may)."""
    return <BlockC*>lsm_load_ptr(<void**>&t.blocks[i])


cdef inline void table_prefetch_block(TableC* t, uint32_t i) noexcept nogil:
    """The lines of a cached block that block_get reads first."""
    cdef BlockC* b = <BlockC*>lsm_load_ptr(<void**>&t.blocks[i])
    if b != NULL:
        lsm_prefetch(b)
        lsm_prefetch(<char*>b - 64)
        lsm_prefetch(<char*>b - 128)
        lsm_prefetch(<char*>b - 192)


# Pinned, or NULL where it is not in the cache.
cdef BlockC* table_pin_cached(TableC* t, uint32_t i, bint gil_held) noexcept nogil
# Pinned block i, from the cache or the disk.
cdef int table_read_block(TableC* t, uint32_t i, ReadContext* rc, BlockC** out, Status* st) noexcept nogil
# The same past the cache: from the disk, private and pinned. With gil_held the GIL is let go meanwhile.
cdef int table_load_block(TableC* t, uint32_t i, ReadContext* rc, BlockC** out, Status* st) noexcept nogil
# A block from its bytes as they stand in the file at `offset`: checked, private, pinned.
cdef int table_decode_block(TableC* t, const char* frame, size_t n, uint64_t offset, BlockC** out,
                            Status* st) noexcept nogil
cdef void table_unpin(TableC* t, BlockC* b) noexcept nogil                 # NULL is fine
# ST_OK / ST_NOT_FOUND / error. No filter check inside (the caller did it). On ST_OK out.value points into *pinned,
# which the caller unpins after copying; with gil_held a cached block comes without a pin (*pinned = NULL).
# out.key is NULL.
cdef int table_get(TableC* t, const char* key, size_t klen, uint64_t hash, ReadContext* rc, Entry* out,
                   BlockC** pinned, Status* st) noexcept nogil
# The same for a caller that knows the key's block (of table_find_block). `held`: that block, whose pin comes back in *pinned, or
# NULL.
cdef int table_get_in(TableC* t, uint32_t block, BlockC* held, const char* key, size_t klen, uint64_t hash, ReadContext* rc,
                      Entry* out, BlockC** pinned, Status* st) noexcept nogil

cdef void table_iter_init(TableIter* it, TableC* t, ReadContext* rc) noexcept nogil
cdef void table_iter_close(TableIter* it) noexcept nogil                   # unpins, frees; safe on a zeroed struct
cdef int table_iter_seek_first(TableIter* it) noexcept nogil
cdef int table_iter_seek_last(TableIter* it) noexcept nogil
cdef int table_iter_seek(TableIter* it, const char* key, size_t klen) noexcept nogil             # first >= key
# The last entry <= key, or < key.
cdef int table_iter_seek_for_prev(TableIter* it, const char* key, size_t klen, bint inclusive) noexcept nogil
cdef int table_iter_next(TableIter* it) noexcept nogil                     # next and prev on no entry: still none
cdef int table_iter_prev(TableIter* it) noexcept nogil
# Bytes of the file in front of `key`'s place: for approximate_size and for splitting jobs.
cdef uint64_t table_offset_of(const TableC* t, const char* key, size_t klen) noexcept nogil


cdef class Table:
    cdef TableC* c
    cdef readonly object path
    cdef readonly BlockCache cache
    cdef readonly FdCache fds
    cdef bytes _path
    cdef list _obsolete
    cdef int born                  # fork_count when it was opened
    cdef uint64_t _number
    cdef object __weakref__
    cdef dict _describe_block(self, uint32_t i, bytes separator)
