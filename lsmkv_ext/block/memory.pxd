# A data block in memory, and an entry borrowed from it: the structs that its readers share.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    BLOCK_SLACK = 32               # readable bytes after the data: 16-byte loads may run past its end
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
    int kind                       # ENTRY_*

# The struct follows its data in one allocation. Before the key and the value, a hit reads only the first 64 bytes of the struct
# and the bytes just before it.
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
    uint8_t wide                   # offsets of 4 bytes
    uint8_t has_kinds              # n entry kinds stand before the tags
    bint pooled                    # alloc is from the slab, else from malloc
    void* alloc                    # owned
    uint64_t charge                # bytes this costs the cache
    BlockC** slot                  # borrowed: the table's pointer to this block, NULL when unlinked
    BlockC* next                   # ring of its segment, or the limbo list
    BlockC* prev
