# The writer of a write-ahead log: one record per batch, in a preallocated file that is mapped shared and written with plain
# stores. A stored record survives kill -9, as after write(2); fdatasync makes it survive a power cut. Layout: wal/format.pxd.
#
# One appender at a time, which holds the writer's turn of the engine. log_sync may run concurrently, without the GIL, from any
# thread.
# GIL-protected: the appender's fields of LogC during short writes, which take no turn and keep the GIL from reserve to commit.
#
# The file is mapped a window at a time, so resident memory stays small. It is never truncated while mapped, and space is
# allocated (posix_fallocate) before it is stored to: a full disk is ENOSPC, never SIGBUS. The writer also prefaults the file by
# writing zeros ahead of the records: one pwrite brings up to 64 pages into the page cache, where a page fault for each would cost
# ten times as much.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.port.latency cimport LATENCY_BUCKETS
from lsmkv_ext.port.pthread cimport pthread_cond_t, pthread_mutex_t
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.values.writer cimport ValueWriter, ValueWriterC
from lsmkv_ext.wal.format cimport record_size
from lsmkv_ext.wal.sync_watermark cimport SyncWatermark, WatermarkC

ctypedef struct LogC:
    int fd
    bint mapped             # else pwrite per record
    uint64_t number
    # Fields of the appender.
    uint64_t offset         # where the next record goes; atomic: log_sync reads it
    uint64_t allocated      # bytes of the file allocated by posix_fallocate
    char* window            # owned mapping of the bytes [window_start, window_start + window_size) of the file, or NULL
    uint64_t window_start
    uint64_t window_size
    uint64_t prefaulted     # pages below this offset are in the page cache; at most the window's end
    uint64_t step           # bytes prefaulted last
    uint64_t step_syncs     # n_syncs when they were prefaulted
    char* scratch           # owned; write mode: the record under construction
    size_t scratch_size
    # Under sync_mutex, except where atomic.
    pthread_mutex_t sync_mutex
    pthread_cond_t sync_done
    bint leading            # a thread runs fdatasync for all that wait on sync_done
    uint64_t synced         # records below are on disk; atomic
    char* head              # owned mapping of the head page, or NULL
    ValueWriterC* values    # borrowed: the value log that records point into, synced before the log; NULL: none; atomic
    WatermarkC* watermark   # borrowed while attached: where `synced` is stored; NULL: in the slots of the head
    uint64_t slot_count     # stores to the head's slots
    int sync_error          # errno of the first fdatasync that failed; never cleared
    int waiting             # threads that asked for a sync since the last fdatasync began; atomic
    int group_size          # threads that one fdatasync serves: decays towards what the last one served
    uint64_t n_syncs        # atomic to read
    uint64_t sync_ns        # atomic to read
    uint64_t sync_buckets[LATENCY_BUCKETS]      # of the durations; atomic to read


cdef inline bint log_has_room(const LogC* log, size_t n) noexcept nogil:
    """Whether log_reserve and log_commit of n payload bytes make no system call."""
    return log.mapped and log.offset + record_size(n) <= log.prefaulted


# Room for n payload bytes, or NULL with *st set and nothing changed.
cdef char* log_reserve(LogC* log, size_t n, Status* st) noexcept nogil
# Completes the record of the n bytes in the reserved room. In write mode this is the one pwrite.
cdef int log_commit(LogC* log, size_t n, uint64_t first_seq, uint32_t count, Status* st) noexcept nogil
# Returns once every byte below `upto`, and every value that these records point to, is on disk. Concurrent callers share one
# fdatasync of each file (group commit).
cdef int log_sync(LogC* log, uint64_t upto, Status* st) noexcept nogil


cdef class LogWriter:
    cdef LogC* c                        # owned
    cdef readonly str path
    cdef readonly uint64_t number
    cdef SyncWatermark watermark        # keeps c.watermark alive
    cdef ValueWriter values             # keeps c.values alive; None: no record points to a value
    # GIL-protected: closed, watermark.
    cdef bint closed

    cdef int create(self, uint32_t version, uint64_t previous_last_seq) except -1
    cdef int resume(self) except -1
    cdef int discard(self, bytes name) except -1
    # Before the first record that points into it; its name is durable.
    cpdef int attach_values(self, ValueWriter values) except -1
