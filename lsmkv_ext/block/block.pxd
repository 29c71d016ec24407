# A data block in memory: allocation, structure check, point reads. Byte layout: block/format.pxd.
#
# The reader puts the bytes straight into b.data and calls block_check, which validates the whole structure once. Gets and
# iterators rely on that and check no bounds again.
#
# Ownership: block_alloc returns the block with one pin. A private block is freed by block_free or by its last unpin; once it is
# in the block cache, the cache frees it (cache/block_cache.pxd).
# GIL-protected: a cached block without a pin; it is freed only with the GIL held, so it may be read until the GIL is released.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    BLOCK_SLACK = 32               # readable bytes after the data, so that 16-byte loads may run over its end
    BLOCK_MAX_RAW = (1 << 30) + (1 << 25)   # MAX_VALUE, its key, and the largest block_size
    SEG_PRIVATE = 0                # never in the cache: freed by its last unpin
    SEG_MAIN = 1
    SEG_PROBATION = 2
    SEG_LIMBO = 3                  # evicted, waiting for a thread with the GIL to free it

ctypedef struct Entry:             # borrowed: key and value live as long as the block or iterator they came from
    const char* key
    size_t klen
    const char* value
    size_t vlen
    uint64_t seq
    int is_delete

# The struct follows its data in one allocation. A hit reads only its first 64 bytes and the bytes just in front of it before it
# goes to the key and the value.
ctypedef struct BlockC:
    char* data                     # raw_size bytes
    int pins                       # atomic
    uint8_t usage                  # bumped by hits without a lock, lowered by the clock hand
    uint8_t segment                # SEG_*, under the cache's mutex (except SEG_PRIVATE, which never changes back)
    uint8_t shift                  # log2 of the restart interval
    uint8_t seq_width              # bytes per sequence number
    uint32_t n_entries
    uint32_t keys_at               # offsets into the data; values start at 0
    uint32_t seqs_at
    uint32_t ends_at
    uint32_t restarts_at
    uint32_t tags_at
    uint32_t raw_size
    uint64_t base_seq
    uint16_t max_klen
    bint wide                      # offsets of 4 bytes
    bint pooled                    # alloc is from the slab, else from malloc
    void* alloc                    # owned
    uint64_t charge                # bytes this costs the cache
    BlockC** slot                  # borrowed: the table's pointer to this block, NULL when unlinked
    BlockC* next                   # ring of its segment, or the limbo list
    BlockC* prev

# raw_size bytes, pins = 1, SEG_PRIVATE; NULL without memory. `pooled`: from the slab's huge pages, for blocks that stay.
cdef BlockC* block_alloc(size_t raw_size, bint pooled) noexcept nogil
cdef void block_free(BlockC* b) noexcept nogil                      # NULL is fine
# Validates b.data[:raw_size] and fills the struct. Returns NULL, or what is wrong.
cdef const char* block_check(BlockC* b) noexcept nogil
# 1 found (out.key is NULL: the caller has it), 0 absent. `hash` is with the table's seed.
cdef int block_get(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil
# Prefetches the lines of key and value that block_get will most likely read.
cdef void block_prefetch(const BlockC* b, uint64_t hash) noexcept nogil
# block_get without SIMD: for other CPUs, and for tests.
cdef int block_get_portable(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil
# Hashes all keys into `out`, in order. Returns the bytes of all keys. kbuf: max_klen + BLOCK_SLACK bytes.
cdef uint64_t block_hash_keys(const BlockC* b, uint64_t seed, char* kbuf, uint64_t* out) noexcept nogil
