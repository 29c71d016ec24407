# Atomic updates: read a key, compute, and write if nothing has written the key since.
#
# The read and the computation come before the turn, so a turn never reads the disk or runs the caller's code. The write checks
# that the key is unchanged; otherwise the update starts over. The log has the resulting put or delete.
#
# GIL-protected: the check and the write, between which nothing else runs

from libc.stdint cimport int64_t

from lsmkv_ext.engine cimport Seen
from lsmkv_ext.store cimport Store

cdef enum NumberUpdate:
    ADD
    MAXIMUM
    MINIMUM


cdef class UpdatingStore(Store):
    # The value of `key` or MISSING, and in `seen` what a write then compares with.
    cdef object read(self, bytes key, Seen seen)
    # False if the key has changed since; then nothing is written. A `value` of None deletes. The entry keeps the expiry that was
    # read, or gets the default one if there was none.
    cdef bint write_unchanged(self, bytes key, bytes value, Seen seen, int sync) except -1
    cdef object update_number(self, object key, int64_t n, int64_t default, NumberUpdate how, object sync)
