# SYNCED: how much of the log in use is known to be on disk, in a file of its own. Byte grid: docs/format.md.
#
# The watermark is a store into a mapped page after each fdatasync of the log; nobody ever syncs it. It outlives a killed process;
# after a power cut it may lag, but it never lies. In the log's own head page it would be dirty again at each fdatasync: a second
# write to another place of the disk, a fifth of what a synced put costs.
#
# One log at a time has the watermark, and stores into it under that log's sync mutex.

from libc.stdint cimport uint64_t

ctypedef struct WatermarkC:
    char* page              # owned mapping
    uint64_t count          # notes made: the larger one of two is the newer

# In the older of two slots: a store that a kill cuts short leaves the other one good.
cdef void watermark_store(WatermarkC* watermark, uint64_t number, uint64_t synced) noexcept nogil


cdef class SyncWatermark:
    cdef WatermarkC c
    cdef readonly str path
