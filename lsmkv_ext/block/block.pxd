# One data block: sorted entries with prefix compression and restart points, plus one tag byte per entry (from the
# key's hash) so that a point read finds its entry without a search. Byte grid: docs/format.md, "Data block". Writer
# and reader share this file.
#
# Keys and values are two sections, and the places of the values a third: once a tag matches, the value can be fetched
# while the key is still being compared, and that comparison walks over neighbouring keys only, not over values.
#
#   values | keys | sequence numbers | value ends | restarts | tags | header
#   key entry: varint shared, varint unshared, suffix
#   restarts and value ends: 2 bytes each, or 4 where a section is longer than 65535
#   sequence number: (seq - base seq) << 1 | is_delete in the fewest bytes that hold the block's largest
#
# The small sections stand at the end, next to the struct, so that one prefetch reaches them all. Values in front also
# compress better: LZ4 takes ever larger steps through bytes that do not repeat, like keys and tags, and would step
# over the first repeats of the values.
#
# Whoever has the bytes (read or decompressed) puts them straight into b.data and calls block_check, which looks at the
# whole structure once. Everything after that (gets, iterators) relies on it and checks no bounds again.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from lsmkv_ext.port.growable cimport GrowBuf

cdef enum:
    BLOCK_HEADER_SIZE = 24
    BLOCK_SLACK = 32               # readable bytes after the data, so that 16-byte loads may run over its end
    BLOCK_MAX_SHIFT = 6            # restart interval at most 64
    BLOCK_MAX_RAW = (1 << 30) + (1 << 25)   # MAX_VALUE, its key, and room for the largest block_size
    SEG_PRIVATE = 0                # never in the cache: freed by its last unpin
    SEG_MAIN = 1
    SEG_PROBATION = 2
    SEG_LIMBO = 3                  # evicted, waiting for a thread with the GIL to free it

ctypedef struct Entry:            # borrowed: key and value live as long as the block or iterator they came from
    const char* key
    size_t klen
    const char* value
    size_t vlen
    uint64_t seq
    int is_delete

# The struct stands behind its data in one malloc; its first 64 bytes and what is just in front of it are all that a hit
# reads before it goes to the key and the value.
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
    bint pooled                    # alloc is a slot of the slab, else malloc's
    void* alloc                    # owned
    uint64_t charge                # bytes this costs the cache
    BlockC** slot                  # borrowed: the table's pointer to this block, NULL when unlinked
    BlockC* next                   # ring of its segment, or the limbo list
    BlockC* prev

ctypedef struct RunEntry:
    size_t key_at                  # into BlockIter.run_keys
    size_t klen
    const char* value
    size_t vlen
    uint64_t seq
    int is_delete

ctypedef struct BlockIter:
    const BlockC* block            # borrowed
    bint valid
    Entry entry                    # valid until the next move
    uint32_t index
    bint forward                   # next_key / next_value stand behind `index`
    const char* next_key
    const char* next_value
    char* kbuf                     # owned
    size_t kcap
    uint32_t run                   # which restart run is decoded for prev; UINT32_MAX = none
    RunEntry* runs                 # owned
    char* run_keys                 # owned
    size_t run_keys_cap

ctypedef struct BlockBuilder:
    uint32_t shift
    uint32_t n_entries
    uint64_t min_seq, max_seq
    GrowBuf keys
    GrowBuf values
    GrowBuf tags
    GrowBuf restarts               # uint32_t each
    GrowBuf ends                   # uint32_t each
    GrowBuf seqs                   # seq << 1 | is_delete, uint64_t each
    GrowBuf last                   # the key added last
    GrowBuf raw                    # the finished block


cdef inline uint8_t block_tag(uint64_t hash) noexcept nogil:
    return <uint8_t>(hash >> 56)


# Room for raw_size bytes, pins = 1, SEG_PRIVATE; NULL when there is no memory. `pooled`: on huge pages, for blocks
# that stay.
cdef BlockC* block_alloc(size_t raw_size, bint pooled) noexcept nogil
cdef void block_free(BlockC* b) noexcept nogil
# Checks the structure of b.data[:raw_size] and fills the struct; NULL, or what is wrong.
cdef const char* block_check(BlockC* b) noexcept nogil
# 1 found (out.key is NULL: the caller has it), 0 not in this block. `hash` is with the TABLE's seed.
cdef int block_get(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil
# Sends for the lines of key and value that block_get will most likely want.
cdef void block_prefetch(const BlockC* b, uint64_t hash) noexcept nogil
# The same answer without SIMD: for other CPUs, and for tests.
cdef int block_get_portable(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil
# Hashes of all keys into `out`, in order, without a look at anything else; returns how many bytes the keys have together. kbuf:
# max_klen + BLOCK_SLACK bytes.
cdef uint64_t block_hash_keys(const BlockC* b, uint64_t seed, char* kbuf, uint64_t* out) noexcept nogil

# BlockIter: zero the struct (block_iter_init), set it on a block, move, close. 0 or ST_NO_MEMORY.
cdef void block_iter_init(BlockIter* it) noexcept nogil
cdef void block_iter_close(BlockIter* it) noexcept nogil
cdef int block_iter_set(BlockIter* it, const BlockC* b) noexcept nogil       # on no entry; `it` may be reused
cdef void block_iter_first(BlockIter* it) noexcept nogil
cdef int block_iter_last(BlockIter* it) noexcept nogil
cdef void block_iter_seek(BlockIter* it, const char* key, size_t klen) noexcept nogil      # first entry >= key
cdef void block_iter_next(BlockIter* it) noexcept nogil
cdef int block_iter_prev(BlockIter* it) noexcept nogil

# BlockBuilder: init, add in order (not checked here), finish gives `raw`, reset for the next block.
# 0 or ST_NO_MEMORY.
cdef void block_builder_init(BlockBuilder* bb, uint32_t restart_interval) noexcept nogil
cdef void block_builder_free(BlockBuilder* bb) noexcept nogil
cdef void block_builder_reset(BlockBuilder* bb) noexcept nogil
cdef int block_builder_add(BlockBuilder* bb, const char* key, size_t klen, const char* val, size_t vlen,
                           uint64_t seq, int is_delete, uint64_t hash) noexcept nogil
cdef int block_builder_finish(BlockBuilder* bb) noexcept nogil
# A block of this entry alone, but for the value that it begins with: `raw` is what follows that. The builder must be empty.
cdef int block_builder_alone(BlockBuilder* bb, const char* key, size_t klen, size_t vlen, uint64_t seq, int is_delete,
                             uint64_t hash) noexcept nogil
cdef inline size_t block_builder_size(const BlockBuilder* bb) noexcept nogil:
    """An estimate: the widths of offsets and sequence numbers are known at the end."""
    return BLOCK_HEADER_SIZE + bb.tags.len + bb.restarts.len // 2 + bb.ends.len // 2 + bb.keys.len + bb.values.len
