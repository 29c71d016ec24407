# Where the operations of each keyspace go: the memtables of one log by keyspace.

from libc.stdint cimport uint32_t

from lsmkv_ext.memtable.memtable cimport MemC

ctypedef struct MemSlot:
    uint32_t keyspace
    MemC* memtable              # borrowed

ctypedef struct MemSlots:       # in ascending order of keyspaces, the default one first
    MemSlot* items              # owned
    Py_ssize_t count


cdef inline MemSlot* slots_find(const MemSlots* slots, uint32_t keyspace) noexcept nogil:
    """NULL if there is no such keyspace."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = slots.count
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if slots.items[middle].keyspace < keyspace:
            low = middle + 1
        else:
            high = middle
    return &slots.items[low] if low < slots.count and slots.items[low].keyspace == keyspace else NULL
