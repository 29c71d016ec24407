# Reads that wait for the disk overlap: before a caller reads several blocks, it has the kernel start all of them. No threads, so
# nothing to stop at a close, a fork or the end of the interpreter. A scan of one table needs none of this: the kernel reads
# ahead.
#
# Starting a read costs a system call, so it is done only while reads wait: the descriptor cache remembers how long the last ones
# took (`fd_note_read`). A hint in every respect: it never fails, and an answer does not depend on it.

from libc.stdint cimport uint32_t

from lsmkv_ext.port.atomics cimport lsm_load32
from lsmkv_ext.table.reader cimport TableC


cdef inline bint table_is_cold(TableC* t) noexcept nogil:
    """Whether the next read of the table is expected to wait for the disk."""
    return t.fds != NULL and lsm_load32(&t.fds.cold) > 0


# Starts reading block i unless it is cached.
cdef void table_start_block(TableC* t, uint32_t i) noexcept nogil
