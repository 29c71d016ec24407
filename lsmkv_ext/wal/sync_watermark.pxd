# The file SYNCED: how much of the active log is known to be on disk. Byte grid: docs/format.md. Its page also has the slots of
# the clock that judges expiries (port/wall_clock).
#
# After each fdatasync of the log its writer stores the watermark into a mapped page, which is never synced. The watermark
# survives a killed process. After a power cut it may lag behind, but it is never ahead. In the head page of the log, it would
# dirty that page before each fdatasync: a second write elsewhere on disk, a fifth of the cost of a synced put.
#
# The watermark is attached to one log at a time, which stores it under its sync mutex.

from libc.stdint cimport uint64_t

ctypedef struct WatermarkC:
    char* page              # owned mapping; NULL if the file system cannot map: then logs store the offset in their heads
    uint64_t count          # of the newest slot

cdef void watermark_store(WatermarkC* watermark, uint64_t number, uint64_t synced) noexcept nogil


cdef class SyncWatermark:
    cdef WatermarkC c
    cdef readonly str path
