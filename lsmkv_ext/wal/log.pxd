# The write-ahead log: one record per batch, in a preallocated file that is mapped shared and written by plain stores. What is
# stored survives kill -9 just as write(2) does; fdatasync makes it survive a power cut. Byte grid: docs/format.md.
#
# One appender at a time (the engine's writer's turn). log_sync may run beside it, off the GIL, from any thread.
# The file is mapped a window at a time, so that resident memory stays small; it is never truncated while mapped, and
# posix_fallocate comes before each store, so that a full disk is ENOSPC and never SIGBUS. It is also prefaulted with zeros ahead:
# a write call brings pages into the cache by the hundred; the first store to each would be a fault that costs ten times as much.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.port.pthread cimport pthread_cond_t, pthread_mutex_t
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.wal.sync_watermark cimport WatermarkC, SyncWatermark

cdef enum:
    LOG_HEAD_SIZE = 4096
    LOG_RECORD_HEADER = 32
    LOG_SLOT_A = 512        # two alternating "known synced" slots
    LOG_SLOT_B = 1024
    LOG_WINDOW = 1 << 20
    LOG_FIRST_ALLOCATION = 64 << 10     # the file grows by at least so much at a time,
    LOG_ALLOCATION = 4 << 20            # and by at most so much
    LOG_FIRST_STEP = 16 << 10
    LOG_BATCH = 1           # record type

ctypedef struct LogC:
    int fd
    bint mapped             # else pwrite per record
    uint64_t number
    uint64_t offset         # where the next record goes
    uint64_t allocated      # file bytes that posix_fallocate has given
    char* head              # the mapped head page, or NULL
    char* window
    uint64_t window_start
    uint64_t window_size
    uint64_t prefaulted          # stores up to here meet pages that are in the cache; never behind the window's end
    uint64_t step           # prefaulted last
    uint64_t syncs_then     # n_syncs at that time
    char* scratch           # write mode: the record under construction
    size_t scratch_size
    pthread_mutex_t sync_mutex
    pthread_cond_t sync_done
    bint leading            # one thread is in fdatasync for all who wait on sync_done
    uint64_t synced         # records below are on disk, atomic
    WatermarkC* watermark             # borrowed: where to watermark what is synced while the log is in use, else NULL: in the head
    uint64_t slot_count     # how many slots of the head were stored
    int sync_error          # errno of the fdatasync that failed, for good
    int waiting             # threads that came for a sync since the last fdatasync began, atomic
    int group_size             # how many of them the last fdatasync served, or a little less than it used to
    uint64_t n_syncs
    uint64_t sync_ns

# A place for `n` payload bytes, or NULL with *st set and nothing changed.
cdef char* log_reserve(LogC* log, size_t n, Status* st) noexcept nogil
# The n bytes at the reserved place become a record. Write mode does its one pwrite here.
cdef int log_commit(LogC* log, size_t n, uint64_t first_seq, uint32_t count, Status* st) noexcept nogil
# Returns once everything up to `upto` is on disk; callers that wait share one fdatasync.
cdef int log_sync(LogC* log, uint64_t upto, Status* st) noexcept nogil


cdef class LogWriter:
    cdef LogC* c
    cdef readonly str path
    cdef readonly uint64_t number
    cdef SyncWatermark watermark
    cdef bint closed
