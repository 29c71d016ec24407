# Iterates over one table in both directions, with read-ahead.
#
# table_iter_init, move, close. The table and the ReadContext are borrowed; the current block is pinned. Moves return ST_OK (check
# `valid`) or the code in `status`. After a failure the iterator is on no entry, and a seek may try again.
#
# Hot: a step is one call into this module (table_iter_next) and one into block/iterator (block_iter_next).

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.block.iterator cimport BlockIter
from lsmkv_ext.block.memory cimport BlockC, Entry
from lsmkv_ext.port.growable cimport GrowBuf
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.reader cimport ReadContext, TableC

ctypedef struct TableIter:
    bint valid
    Entry entry                    # valid until the next move
    Status status
    TableC* t                      # borrowed
    ReadContext* rc                # borrowed; gil_held may change between calls
    BlockC* block                  # pinned
    uint32_t index                 # of that block
    BlockIter it
    uint64_t window                # bytes of the next read-ahead
    uint32_t in_sequence           # blocks entered in sequence since the last seek
    GrowBuf ahead                  # read-ahead buffer: bytes of the file from ahead_at on
    uint64_t ahead_at

cdef void table_iter_init(TableIter* it, TableC* t, ReadContext* rc) noexcept nogil
cdef void table_iter_close(TableIter* it) noexcept nogil                   # unpins, frees; safe on a zeroed struct
cdef int table_iter_seek_first(TableIter* it) noexcept nogil
cdef int table_iter_seek_last(TableIter* it) noexcept nogil
cdef int table_iter_seek(TableIter* it, const char* key, size_t klen) noexcept nogil             # first >= key
# The last entry <= key, or < key.
cdef int table_iter_seek_for_prev(TableIter* it, const char* key, size_t klen, bint inclusive) noexcept nogil
cdef int table_iter_next(TableIter* it) noexcept nogil                     # next and prev do nothing if it is on no entry
cdef int table_iter_prev(TableIter* it) noexcept nogil
