# SYNCED: how much of the log in use is known to be on disk, in a file of its own. Byte grid: docs/format.md.
#
# After each fdatasync of the log its writer stores the watermark into a mapped page; nobody syncs it. It outlives a killed
# process; after a power cut it may lag, but it never runs ahead. In the log's own head page it would dirty that page at each
# fdatasync: a second write to another place of the disk, a fifth of what a synced put costs.
#
# One log at a time has the watermark and stores it under its sync mutex.

from libc.stdint cimport uint64_t

ctypedef struct WatermarkC:
    char* page              # owned mapping; NULL where the file system cannot map: logs keep the watermark in their heads
    uint64_t count          # of the newest slot

cdef void watermark_store(WatermarkC* watermark, uint64_t number, uint64_t synced) noexcept nogil


cdef class SyncWatermark:
    cdef WatermarkC c
    cdef readonly str path
