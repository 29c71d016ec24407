# Iterates over one block in both directions.
#
# block_iter_init, block_iter_set, move, close. The block is borrowed: the caller keeps it pinned. Moves that can fail return
# ST_OK or ST_NO_MEMORY.
#
# Hot: a step of a table iterator calls block_iter_next; everything that calls is inline.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.block.memory cimport BlockC, Entry
from lsmkv_ext.port.growable cimport GrowBuf

ctypedef struct RunEntry:
    size_t key_at                  # into BlockIter.run_keys
    size_t klen
    const char* value
    size_t vlen
    uint64_t seq
    int kind

ctypedef struct BlockIter:
    const BlockC* block            # borrowed
    bint valid
    Entry entry                    # valid until the next move
    uint32_t index
    bint forward                   # next_key and next_value point past entry `index`
    const char* next_key
    const char* next_value
    GrowBuf key                    # the current key; len is unused
    uint32_t run                   # the restart run decoded for prev; UINT32_MAX = none
    RunEntry* runs                 # owned; RUN_MAX of them
    GrowBuf run_keys               # len is unused

cdef void block_iter_init(BlockIter* it) noexcept nogil
cdef void block_iter_close(BlockIter* it) noexcept nogil
cdef int block_iter_set(BlockIter* it, const BlockC* b) noexcept nogil       # on no entry; `it` may be reused
cdef void block_iter_first(BlockIter* it) noexcept nogil
cdef int block_iter_last(BlockIter* it) noexcept nogil
cdef void block_iter_seek(BlockIter* it, const char* key, size_t klen) noexcept nogil      # first entry >= key
cdef void block_iter_next(BlockIter* it) noexcept nogil
cdef int block_iter_prev(BlockIter* it) noexcept nogil
