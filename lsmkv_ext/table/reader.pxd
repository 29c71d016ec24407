# An open table: its decoded index with pointers to cached blocks, and its resident filter. Finds, reads and decodes blocks; looks
# up keys. table/open.pxd opens it.
#
# A TableC is immutable after open except for the cached block pointers, the absent keys, the descriptor and the hints. The Python
# class Table owns it; nogil code borrows the pointer while a caller (a read state, a job, an iterator) holds the object.
# GIL-protected: unpinned blocks in `blocks`. A reader that holds the GIL may use them until it releases the GIL; a reader
# without the GIL pins a block under the cache's lock.
#
# Reads fail with ST_CORRUPT and the offset in the file, ST_IO or ST_NO_MEMORY. A damaged filter is no error: its `usable` is 0.
#
# Hot: a get calls table_find_block and table_get_in, which calls block_get (block/block). A cache hit makes no other call across
# modules.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.block.memory cimport BlockC, Entry
from lsmkv_ext.cache.block_cache cimport CacheC, cache_pin
from lsmkv_ext.cache.fd_cache cimport FdCacheC, FdHandle
from lsmkv_ext.filter.kernel cimport FilterC
from lsmkv_ext.port.atomics cimport lsm_fetch_add32, lsm_load_ptr, lsm_prefetch
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.compression cimport COMPRESSION_ZSTD
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.absent_keys cimport AbsentKeys
from lsmkv_ext.table.format cimport PROP_COMPRESSION, Footer, Properties
from lsmkv_ext.table.meta cimport ValueUse
from lsmkv_ext.table.tombstones cimport Tombstones

ctypedef struct ReadContext:       # one per operation: how to read, and counters of the reads. Zero it, then set.
    bint gil_held                  # the caller holds the GIL; reads that wait for the disk release it
    bint no_wait                   # with gil_held: a read that would wait for the disk fails with ST_IO and EAGAIN
    bint fill_cache
    bint scan                      # new blocks go to probation; TableIter reads ahead
    bint compaction                # TableIter: large reads that bypass the cache
    uint64_t cache_hits            # blocks
    uint64_t disk_reads            # preads
    uint64_t disk_bytes
    uint64_t disk_ns
    uint64_t decompressed          # raw bytes of blocks decoded

cdef enum:
    INDEX_FANOUT = 8
    INDEX_MAX_LEVELS = 12

ctypedef struct TableC:
    # Read by every get, so in the first cache lines.
    uint32_t n_blocks
    uint32_t n_levels              # of the prefix tree
    uint64_t max_prefix            # of the last separator
    size_t common_len              # bytes shared by all separators; the 8-byte prefixes start after them
    char* common                   # owned
    AbsentKeys* absent             # owned; atomic. NULL until a key passes the filter that the table does not have
    uint64_t* levels[INDEX_MAX_LEVELS]   # [0] one prefix per block, padded to INDEX_FANOUT; [l+1] last of each group
    BlockC** blocks                # owned array; cached block or NULL (acquire load)
    uint64_t* sep_at               # n_blocks + 1 offsets into seps: last key of block i <= separator i < first of i + 1
    char* seps
    uint64_t* offsets              # n_blocks + 1: block i is file bytes offsets[i] .. offsets[i + 1] with its trailer
    uint64_t global_seq            # not 0: every entry counts as having this sequence number (ingested tables)
    FilterC filter
    CacheC* cache                  # borrowed; NULL = no cache
    FdCacheC* fds                  # borrowed; NULL = own descriptor
    FdHandle handle
    uint64_t number
    uint64_t file_size
    uint64_t seed                  # of the hashes in filter and tags
    uint64_t n_entries, n_deletes
    uint64_t min_seq, max_seq      # as stored; with global_seq both are that
    const char* smallest           # over entries and range tombstones; borrowed from props_bytes
    size_t smallest_len
    const char* largest
    size_t largest_len
    bint largest_exclusive         # largest is the stop of a range tombstone, not a key
    Tombstones tombstones
    void* filter_alloc             # owned; filter.bits points into it
    uint64_t memory                # resident bytes: index, filter, range tombstones, properties
    uint64_t room                  # bytes that opening may still allocate, of file_size + OPEN_ALLOWANCE
    bint charged                   # memory is reserved in the cache's budget
    uint64_t wasted                # point reads that found nothing; a hint for compaction, so lost updates are fine
    uint64_t dead_passed           # tombstones that scans passed; likewise
    Footer footer
    Properties props
    ValueUse* uses                 # owned: the value logs that entries point into, by number
    size_t n_uses
    uint64_t own_log               # of an ingested table: the value log that pointers with the number 0 mean; else 0
    char* props_bytes              # owned; the raw properties


cdef inline bint table_uses_zstd(const TableC* t) noexcept nogil:
    """Whether its frames may be FRAME_ZSTD; opening the table has made sure that zstd is there."""
    return t.props.numbers[PROP_COMPRESSION] == COMPRESSION_ZSTD


cdef inline bint table_ends_before(const TableC* t, const char* key, size_t klen) noexcept nogil:
    """Whether all of the table, its range tombstones included, lies below `key`."""
    cdef int r = lsm_compare(t.largest, t.largest_len, key, klen)
    return r < 0 or (r == 0 and t.largest_exclusive)


# First block whose separator is >= key; n_blocks = none. If no key of it is >= `key`, the first of the next block is.
cdef uint32_t table_find_block(const TableC* t, const char* key, size_t klen) noexcept nogil
# Offset of the block of `key`: for approximate_size and subcompactions.
cdef uint64_t table_offset_of(const TableC* t, const char* key, size_t klen) noexcept nogil


cdef inline BlockC* table_peek_block(TableC* t, uint32_t i) noexcept nogil:
    """Returns the cached block or NULL, not pinned: needs the GIL and is valid until it is released (table_read_block may)."""
    return <BlockC*>lsm_load_ptr(<void**>&t.blocks[i])


cdef inline BlockC* table_pin_cached(TableC* t, uint32_t i, bint gil_held) noexcept nogil:
    """Returns the cached block, pinned, or NULL."""
    cdef BlockC* b
    if t.cache == NULL:
        return NULL
    if not gil_held:
        return cache_pin(t.cache, &t.blocks[i])
    b = table_peek_block(t, i)
    if b != NULL:
        lsm_fetch_add32(&b.pins, 1)
    return b


cdef inline void table_prefetch_block(TableC* t, uint32_t i) noexcept nogil:
    """Prefetches the lines of a cached block that block_get reads first."""
    cdef BlockC* b = table_peek_block(t, i)
    if b != NULL:
        lsm_prefetch(b)
        lsm_prefetch(<char*>b - 64)
        lsm_prefetch(<char*>b - 128)
        lsm_prefetch(<char*>b - 192)


# Reads n bytes of the file; a shorter file is ST_CORRUPT.
cdef int table_pread(TableC* t, char* buf, size_t n, uint64_t offset, Status* st) noexcept nogil
# The same, counted in rc; with rc.gil_held it may release the GIL: it does if it would wait for the disk.
cdef int table_pread_counted(TableC* t, char* buf, size_t n, uint64_t offset, ReadContext* rc, Status* st) noexcept nogil
# The failure of a read with rc.no_wait that would wait.
cdef int refuse_wait(Status* st) noexcept nogil
# Returns block i, pinned, from the cache or the disk.
cdef int table_read_block(TableC* t, uint32_t i, ReadContext* rc, BlockC** out, Status* st) noexcept nogil
# The same from the disk, bypassing the cache: private and pinned. With rc.gil_held it may release the GIL.
cdef int table_load_block(TableC* t, uint32_t i, ReadContext* rc, BlockC** out, Status* st) noexcept nogil
# Decodes the frame of a block at `offset` of the file: checked, private, pinned. `pooled`: see block_alloc.
cdef int table_decode_block(TableC* t, const char* frame, size_t n, uint64_t offset, bint pooled, BlockC** out,
                            Status* st) noexcept nogil
# Whether a block read now should come from the slab: it will be cached, and enough is cached for huge pages to pay off.
cdef bint table_pools_block(const TableC* t, const ReadContext* rc) noexcept nogil
# Inserts a private block into the cache as block i, if rc allows it. Returns the block to use, pinned.
cdef BlockC* table_cache_block(TableC* t, uint32_t i, BlockC* b, ReadContext* rc, bint scan) noexcept nogil
cdef void table_unpin(TableC* t, BlockC* b) noexcept nogil                 # NULL is fine
# ST_OK / ST_NOT_FOUND / error. The filter is not probed (the caller did it). On ST_OK out.value points into *pinned, which the
# caller unpins after copying; with gil_held a cached block comes without a pin (*pinned = NULL). out.key is NULL.
cdef int table_get(TableC* t, const char* key, size_t klen, uint64_t hash, ReadContext* rc, Entry* out,
                   BlockC** pinned, Status* st) noexcept nogil
# The same for a caller that knows the key's block (from table_find_block). `held`: that block, whose pin comes back in *pinned,
# or NULL.
cdef int table_get_in(TableC* t, uint32_t block, BlockC* held, const char* key, size_t klen, uint64_t hash, ReadContext* rc,
                      Entry* out, BlockC** pinned, Status* st) noexcept nogil
