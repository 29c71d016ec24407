# Applies an operation to a memtable, for batch writes and replay. Inline: it is the inner loop of both.

from libc.stdint cimport uint64_t

from lsmkv_ext.batch cimport OP_DELETE_RANGE, Operation
from lsmkv_ext.memtable.memtable cimport MemC, mem_delete_range, mem_insert

cdef inline int mem_apply(MemC* m, const Operation* op, uint64_t hash) noexcept nogil:
    """`hash` is that of the key. 0, or -1 if out of memory."""
    if op.op == OP_DELETE_RANGE:
        return mem_delete_range(m, op.key, op.klen, op.value, op.vlen, op.seq)
    return mem_insert(m, op.key, op.klen, op.value, op.vlen, op.expiry, op.seq, op.op, hash)
