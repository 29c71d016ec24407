# Builds the raw bytes of blocks, one after the other.
#
# init, add in key order (not checked here), finish leaves the block in `raw`, reset for the next block; free at the end. Calls
# that can fail return ST_OK or ST_NO_MEMORY.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.block.format cimport BLOCK_HEADER_SIZE
from lsmkv_ext.port.growable cimport GrowBuf

ctypedef struct BlockBuilder:
    uint32_t shift                 # log2 of the restart interval
    uint32_t n_entries
    uint64_t min_seq, max_seq
    GrowBuf keys
    GrowBuf values
    GrowBuf tags
    GrowBuf kinds
    uint8_t any_kind               # the kinds of all entries, joined
    GrowBuf restarts               # uint32_t each
    GrowBuf ends                   # uint32_t each
    GrowBuf seqs                   # seq << 1 | whether it is a tombstone, uint64_t each
    GrowBuf last                   # the key added last
    GrowBuf raw                    # the finished block

cdef void block_builder_init(BlockBuilder* bb, uint32_t restart_interval) noexcept nogil
cdef void block_builder_free(BlockBuilder* bb) noexcept nogil
cdef void block_builder_reset(BlockBuilder* bb) noexcept nogil
cdef int block_builder_add(BlockBuilder* bb, const char* key, size_t klen, const char* val, size_t vlen,
                           uint64_t seq, int kind, uint64_t hash) noexcept nogil
cdef int block_builder_finish(BlockBuilder* bb) noexcept nogil
# Builds a block of one entry without the bytes of its value, vlen of them: `raw` is what follows them. The builder must be empty.
cdef int block_builder_alone(BlockBuilder* bb, const char* key, size_t klen, size_t vlen, uint64_t seq, int kind,
                             uint64_t hash) noexcept nogil


cdef inline size_t block_builder_size(const BlockBuilder* bb) noexcept nogil:
    """An estimate: the widths of offsets and sequence numbers are known only at the end."""
    return BLOCK_HEADER_SIZE + bb.tags.len + bb.restarts.len // 2 + bb.ends.len // 2 + bb.keys.len + bb.values.len
