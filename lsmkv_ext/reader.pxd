# The calls that read one tree. A database reads its newest state, a snapshot the state that it holds.
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
    cdef bint pinned            # a snapshot: reads `held` at `held_seq`; else the tree's state at handle.visible
    cdef ReadState held         # None: closed
    cdef uint64_t held_seq      # entries with larger sequence numbers are invisible
    cdef uint64_t held_now      # the time by which it judges expiries; 0: that of each call
    cdef ReadState open_state(self, uint64_t* snapshot)
    cdef list pin_states(self, uint64_t* snapshot)
    cdef int report_debts(self) except -1


cdef enum ValueForm:
    AS_BYTES = 0
    AS_VIEW = 1                 # a memoryview of the file; bytes if it is compressed
    NOT_READ = 2                # True
    AS_FILE = 3                 # a file object; bytes if it is not in a value log


# The value or `default`. `row_key` is the key as an object that the row cache may keep, or None. `expiry` gets that of the value,
# or 0; NULL is fine. `form` is how a value in a value log is returned.
cdef object lookup_bytes(Reader self, ReadState state, uint64_t snapshot, const char* key, size_t klen, bytes row_key,
                         object default, bint fill_cache, bint expect_hit, uint64_t* expiry, int form)

# What `ttl` returns for a key with this expiry, or 0.
cdef object seconds_left(uint64_t expiry, uint64_t now)


cdef class SnapshotBase(Reader):
    cdef Reader source          # the database; the reference keeps it open
    cdef list states            # [(tree, state)] of all keyspaces at this moment; None: closed
    cdef int take_moment(self, Reader source, SnapshotBase moment) except -1
    cdef int turn_to(self, Tree tree) except -1
