# The calls that read, over one tree: of a database, which sees the newest state, or of a snapshot, which sees the one it holds.
#
# A get is one call: key -> memtables -> row cache -> tables. It keeps the GIL unless it reads from the disk.
#
# GIL-protected: every field

from libc.stdint cimport uint64_t
from lsmkv_ext.port.handle cimport Dependent
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.tree cimport Tree


cdef class Reader(Dependent):
    cdef Tree tree
    cdef bint pinned            # sees `held` up to `upto`; else the tree's state up to handle.visible
    cdef ReadState held         # None: closed
    cdef uint64_t upto
    cdef ReadState open_state(self, uint64_t* snapshot)
    cdef int report_seek_debt(self) except -1


cdef class SnapshotBase(Reader):
    cdef Reader source          # the database: a snapshot keeps it open
