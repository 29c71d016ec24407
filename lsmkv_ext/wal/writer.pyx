import logging
import os

cimport cython
from libc.errno cimport EDQUOT, EEXIST, EINVAL, ENOSPC, EOPNOTSUPP, errno
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from lsmkv_ext.port.atomics cimport lsm_fetch_add32, lsm_load32, lsm_load64, lsm_load_ptr, lsm_store64, lsm_store_ptr
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.file cimport (
    OPEN_CREATE,
    OPEN_WRITE,
    file_allocate,
    file_close,
    file_datasync,
    file_open,
    file_pwrite,
)
from lsmkv_ext.port.pages cimport (
    MAP_FAILED,
    MAP_SHARED,
    PAGE,
    PROT_READ,
    PROT_WRITE,
    mmap,
    munmap,
    page_ceil,
    page_floor,
)
from lsmkv_ext.port.pthread cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from lsmkv_ext.port.latency cimport latency_count
from lsmkv_ext.port.status cimport ST_OK, Status, fail_io, fail_memory, raise_status, status_clear
from lsmkv_ext.port.sync_slots cimport SlotLayout, SyncSlot, slot_encode, slot_offset
from lsmkv_ext.values.writer cimport value_sync
from lsmkv_ext.wal.format cimport (
    LOG_HEAD_SIZE,
    LOG_RECORD_HEADER,
    LOG_SLOT_SIZE,
    head_encode,
    log_slots,
    record_seal,
    record_size,
)
from lsmkv_ext.wal.sync_watermark cimport SyncWatermark, WatermarkC, watermark_store

from lsmkv_ext.errors import Error, SyncError
from lsmkv_ext.errors import IOError as LsmIOError

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int ftruncate(int fd, long size)

cdef extern from * nogil:
    """
    #define MAX_STEP (256 << 10)
    static const char lsm_zeros[MAX_STEP];
    """
    const char lsm_zeros[]
    enum:
        MAX_STEP

cdef enum:
    WINDOW = 1 << 20
    MIN_ALLOCATION = 64 << 10       # bytes by which the file grows at a time
    MAX_ALLOCATION = 4 << 20
    MIN_STEP = 16 << 10             # bytes prefaulted at a time, up to MAX_STEP
    RECORDS_AHEAD = 16              # that are prefaulted while each is synced
    MAX_GROUP_WAIT_NS = 1000000


# --- appending -------------------------------------------------------------------------------------------------------

cdef int allocate(LogC* log, uint64_t end, Status* st) noexcept nogil:
    """Grows the file to at least `end` bytes, by a quarter if there is room: a small log stays small, a large one rarely
    allocates."""
    cdef uint64_t step = min(max(page_ceil(log.allocated // 4), <uint64_t>MIN_ALLOCATION), <uint64_t>MAX_ALLOCATION)
    cdef uint64_t grown = max(end, log.allocated + step)
    cdef int err = file_allocate(log.fd, log.allocated, grown - log.allocated)
    if (err == ENOSPC or err == EDQUOT) and grown > end:
        grown = end
        err = file_allocate(log.fd, log.allocated, grown - log.allocated)
    if err != 0:
        return fail_io(st, b"log: allocate", err)
    log.allocated = grown
    return ST_OK


cdef int map_window(LogC* log, size_t n, Status* st) noexcept nogil:
    """Allocates and maps the file from the page of `offset` on, for at least n bytes after `offset`."""
    cdef uint64_t start = page_floor(log.offset)
    cdef uint64_t need = page_ceil(log.offset - start + n)
    cdef uint64_t size
    cdef void* p
    if start + need > log.allocated and allocate(log, start + need, st) != ST_OK:
        return st.code
    size = min(log.allocated - start, max(need, <uint64_t>WINDOW))
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd, <long>start)
    if p == MAP_FAILED:
        return fail_io(st, b"log: mmap", errno)
    if log.window != NULL:
        munmap(log.window, log.window_size)
    log.window = <char*>p
    log.window_start = start
    log.window_size = size
    # Not the page that `offset` is in: it may hold records.
    log.prefaulted = page_ceil(log.offset)
    return ST_OK


cdef uint64_t prefault_unit(LogC* log, size_t n) noexcept nogil:
    """Returns the bytes to prefault per pwrite and sets `step` to the bytes to prefault in all. The kernel writes back what one
    pwrite wrote as a unit: so single pages while each record is synced, larger and larger steps otherwise."""
    cdef uint64_t syncs = lsm_load64(&log.n_syncs)
    cdef bint synced = syncs != log.step_syncs
    log.step_syncs = syncs
    if synced or log.step == 0:
        # Writing to new blocks makes the sync of a record commit metadata too; so once for several records.
        log.step = min(max(<uint64_t>MIN_STEP, <uint64_t>(RECORDS_AHEAD * n)), <uint64_t>MAX_STEP)
        return PAGE
    log.step = min(log.step * 2, <uint64_t>MAX_STEP)
    return log.step


cdef int prefault(LogC* log, size_t n, Status* st) noexcept nogil:
    """Makes room for n bytes after `offset` in the file, in the window and in the page cache."""
    cdef uint64_t unit, goal, part
    cdef int err
    if log.window == NULL or log.offset - log.window_start + n > log.window_size:
        if map_window(log, n, st) != ST_OK:
            return st.code
    unit = prefault_unit(log, n)
    goal = page_ceil(log.offset + n + log.step)
    if goal > log.window_start + log.window_size:
        goal = log.window_start + log.window_size
    while log.prefaulted < goal:
        part = goal - log.prefaulted if goal - log.prefaulted < unit else unit
        err = file_pwrite(log.fd, lsm_zeros, part, log.prefaulted)
        if err != 0:
            return fail_io(st, b"log: prefault", err)
        log.prefaulted += part
    return ST_OK


cdef char* log_reserve(LogC* log, size_t n, Status* st) noexcept nogil:
    cdef size_t total = record_size(n)
    cdef char* grown
    if log.mapped:
        if log.offset + total > log.prefaulted:
            if prefault(log, total, st) != ST_OK:
                return NULL
        return log.window + (log.offset - log.window_start) + LOG_RECORD_HEADER
    if log.scratch_size < total:
        grown = <char*>malloc(total * 2)
        if grown == NULL:
            fail_memory(st, b"log record")
            return NULL
        free(log.scratch)
        log.scratch = grown
        log.scratch_size = total * 2
    return log.scratch + LOG_RECORD_HEADER


cdef int log_commit(LogC* log, size_t n, uint64_t first_seq, uint32_t count, Status* st) noexcept nogil:
    cdef size_t total = record_size(n)
    cdef char* record = log.window + (log.offset - log.window_start) if log.mapped else log.scratch
    cdef int err
    record_seal(record, n, log.number, log.offset, first_seq, count, lsm_load64(&log.synced))
    if not log.mapped:
        err = file_pwrite(log.fd, record, total, log.offset)
        if err != 0:
            # Remove a partial record. If this fails too, the next record overwrites it.
            ftruncate(log.fd, <long>log.offset)
            return fail_io(st, b"log: write", err)
    lsm_store64(&log.offset, log.offset + total)
    return ST_OK


# --- group commit ----------------------------------------------------------------------------------------------------

cdef void store_slot(LogC* log, uint64_t synced) noexcept nogil:
    """Stores the known-synced offset in the older slot of the head."""
    cdef SlotLayout slots = log_slots(log.number)
    cdef SyncSlot slot
    cdef char encoded[LOG_SLOT_SIZE]
    log.slot_count += 1
    slot.number = 0
    slot.synced = synced
    slot.count = log.slot_count
    slot_encode(&slots, &slot, encoded)
    if log.head != NULL:
        memcpy(log.head + slot_offset(&slots, log.slot_count), encoded, LOG_SLOT_SIZE)
    else:
        # A failure only makes the slot lag: later record headers carry the offset too.
        file_pwrite(log.fd, encoded, LOG_SLOT_SIZE, slot_offset(&slots, log.slot_count))


cdef void await_group(LogC* log) noexcept nogil:
    """Waits for as many threads as the last fdatasync served, at most as long as an fdatasync takes: they are likely to write
    again soon, and one fdatasync then serves them all. A lone writer never waits."""
    cdef uint64_t group_wait_ns, deadline
    if log.group_size < 2 or log.n_syncs == 0:
        return
    group_wait_ns = log.sync_ns // log.n_syncs
    deadline = lsm_now_ns() + (group_wait_ns if group_wait_ns < MAX_GROUP_WAIT_NS else MAX_GROUP_WAIT_NS)
    while lsm_load32(&log.waiting) < log.group_size and lsm_now_ns() < deadline:
        sched_yield()


cdef int sync_once(LogC* log) noexcept nogil:
    """The part of the leader: one fdatasync for every record in the log by then. The mutex is held, but released during the
    fdatasync."""
    cdef uint64_t end, began, ns
    cdef ValueWriterC* values
    cdef int served
    cdef int err = 0
    log.leading = True
    pthread_mutex_unlock(&log.sync_mutex)
    await_group(log)
    served = lsm_load32(&log.waiting)
    lsm_fetch_add32(&log.waiting, -served)
    end = lsm_load64(&log.offset)
    began = lsm_now_ns()
    # After `end` was taken: all values of the records below it are there. The watermark covers both.
    values = <ValueWriterC*>lsm_load_ptr(<void**>&log.values)
    if values != NULL:
        err = value_sync(values)
    if err == 0:
        err = file_datasync(log.fd)
    pthread_mutex_lock(&log.sync_mutex)
    log.group_size = served if served > log.group_size else log.group_size - (log.group_size - served + 3) // 4
    if err != 0:
        # The kernel may have dropped the dirty pages: a second fdatasync could succeed and prove nothing.
        log.sync_error = err
    else:
        lsm_store64(&log.synced, end)
        if log.watermark != NULL:
            watermark_store(log.watermark, log.number, end)
        else:
            store_slot(log, end)
        # Read without the mutex.
        lsm_store64(&log.n_syncs, log.n_syncs + 1)
        ns = lsm_now_ns() - began
        lsm_store64(&log.sync_ns, log.sync_ns + ns)
        latency_count(log.sync_buckets, ns)
    log.leading = False
    pthread_cond_broadcast(&log.sync_done)
    return err


cdef int log_sync(LogC* log, uint64_t upto, Status* st) noexcept nogil:
    cdef int err = 0
    if lsm_load64(&log.synced) >= upto:
        return ST_OK
    lsm_fetch_add32(&log.waiting, 1)
    pthread_mutex_lock(&log.sync_mutex)
    while lsm_load64(&log.synced) < upto:
        err = log.sync_error
        if err:
            break
        if log.leading:
            pthread_cond_wait(&log.sync_done, &log.sync_mutex)
        else:
            sync_once(log)
    pthread_mutex_unlock(&log.sync_mutex)
    if err != 0:
        return fail_io(st, b"log: fdatasync", err)
    return ST_OK


cdef void log_set_watermark(LogC* log, WatermarkC* watermark) noexcept nogil:
    """Attaches the watermark, or detaches it (NULL): then the synced offset moves into the head of the log."""
    pthread_mutex_lock(&log.sync_mutex)
    if log.watermark != NULL and lsm_load64(&log.synced) > LOG_HEAD_SIZE:
        store_slot(log, lsm_load64(&log.synced))
    log.watermark = watermark
    pthread_mutex_unlock(&log.sync_mutex)


# --- creating and closing --------------------------------------------------------------------------------------------

cdef int write_head(LogC* log, uint32_t version, uint64_t previous_last_seq) noexcept nogil:
    """Writes the head page and syncs it."""
    cdef char head[LOG_HEAD_SIZE]
    cdef int err
    head_encode(head, version, log.number, previous_last_seq)
    log.slot_count = 1
    err = file_pwrite(log.fd, head, LOG_HEAD_SIZE, 0)
    if err == 0:
        log.sync_error = file_datasync(log.fd)
        err = log.sync_error
    return err


cdef void log_unmap(LogC* log) noexcept nogil:
    if log.head != NULL:
        munmap(log.head, LOG_HEAD_SIZE)
        log.head = NULL
    if log.window != NULL:
        munmap(log.window, log.window_size)
        log.window = NULL
        log.window_size = 0
        log.prefaulted = 0


cdef void map_head(LogC* log) noexcept nogil:
    cdef void* head
    if log.mapped:
        head = mmap(NULL, LOG_HEAD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd, 0)
        if head == MAP_FAILED:
            log.mapped = False
        else:
            log.head = <char*>head


cdef int begin_log(LogC* log, uint32_t version, uint64_t previous_last_seq) noexcept nogil:
    """Allocates, writes, syncs and maps the head. Where the file system cannot map, the log falls back to write mode."""
    cdef int err
    if log.mapped:
        err = file_allocate(log.fd, 0, LOG_HEAD_SIZE)
        if err == EOPNOTSUPP or err == EINVAL:
            log.mapped = False
        elif err != 0:
            return err
    err = write_head(log, version, previous_last_seq)
    if err == 0:
        map_head(log)
    return err


@cython.no_gc       # its references cannot form a cycle
cdef class LogWriter:
    """Creates one log file, or resumes one, and appends to it.

    `mode` is "mmap" or "write"; where the file system cannot map or preallocate, "mmap" becomes "write" (see `.mode`).
    With `resume_at` the log exists, its records end there, and all of it is on disk.
    """

    def __cinit__(self, path, uint64_t number, *, mode="mmap", uint32_t version=1, uint64_t previous_last_seq=0,
                  uint64_t resume_at=0):
        cdef LogC* c
        if mode not in ("mmap", "write"):
            raise ValueError(f'log mode must be "mmap" or "write", not {mode!r}')
        self.closed = True
        self.path = os.fsdecode(path)
        self.number = number
        self.c = c = <LogC*>calloc(1, sizeof(LogC))
        if c == NULL:
            raise MemoryError("log")
        c.fd = -1
        pthread_mutex_init(&c.sync_mutex, NULL)
        pthread_cond_init(&c.sync_done, NULL)
        c.number = number
        c.offset = c.synced = max(resume_at, <uint64_t>LOG_HEAD_SIZE)
        # What a resumed log has beyond its records may be a hole: it is allocated again.
        c.allocated = page_floor(c.offset)
        c.mapped = mode == "mmap"
        if resume_at:
            self.resume()
        else:
            self.create(version, previous_last_seq)

    cdef int resume(self) except -1:
        cdef bytes encoded = os.fsencode(self.path)
        cdef Status st
        cdef int fd
        cdef int err = file_open(encoded, OPEN_WRITE, &fd)
        if err:
            status_clear(&st)
            fail_io(&st, b"log: open", err)
            raise_status(&st, self.path)
        self.c.fd = fd
        self.closed = False
        self.c.slot_count = 1       # as in a log without records; a log with records is never synced again
        map_head(self.c)
        return 0

    cdef int create(self, uint32_t version, uint64_t previous_last_seq) except -1:
        cdef bytes temporary = os.fsencode(self.path) + b".tmp"
        cdef const char* cpath = temporary
        cdef LogC* c = self.c
        cdef Status st
        cdef int err, fd
        status_clear(&st)
        # The rename below would replace an existing log.
        err = EEXIST if os.path.lexists(self.path) else file_open(cpath, OPEN_CREATE, &fd)
        if err:
            fail_io(&st, b"log: create", err)
            raise_status(&st, self.path)
        c.fd = fd
        self.closed = False
        with nogil:
            err = begin_log(c, version, previous_last_seq)
        try:
            if err:
                fail_io(&st, b"log: create", err)
                raise_status(&st, self.path)
            # A log gets its name after its head is synced: a named log without a head is damaged.
            os.rename(temporary, self.path)
        except OSError as error:
            self.discard(temporary)
            if c.sync_error:
                raise SyncError(c.sync_error, f"fdatasync: {os.strerror(c.sync_error)}", self.path) from error
            if not isinstance(error, Error):
                raise LsmIOError(error.errno, f"log: {error.strerror}", self.path) from error
            raise
        return 0

    cdef int discard(self, bytes name) except -1:
        log_unmap(self.c)
        file_close(self.c.fd)
        self.c.fd = -1
        self.closed = True
        try:
            os.unlink(name)
        except OSError as error:
            logging.getLogger("lsmkv").warning("could not remove a log that failed to start: %s", error)
        return 0

    @property
    def mode(self):
        """How records are written: "mmap" or "write" (one pwrite each)."""
        return "mmap" if self.c.mapped else "write"

    @property
    def size(self):
        """Bytes up to the end of the last record."""
        return lsm_load64(&self.c.offset)

    @property
    def synced(self):
        """Offset up to which the log is known to be on disk."""
        return lsm_load64(&self.c.synced)

    @property
    def syncs(self):
        """How many fdatasyncs succeeded."""
        return lsm_load64(&self.c.n_syncs)

    @property
    def sync_ns(self):
        """Nanoseconds that these fdatasyncs took."""
        return lsm_load64(&self.c.sync_ns)

    def sync(self):
        """Make everything appended so far survive a power cut."""
        cdef Status st
        cdef uint64_t upto = lsm_load64(&self.c.offset)
        cdef LogC* c = self.c
        if self.closed:
            raise ValueError("the log is closed")
        status_clear(&st)
        with nogil:
            log_sync(c, upto, &st)
        raise_status(&st, self.path)

    cpdef int attach_values(self, ValueWriter values) except -1:
        """The records from now on point into `values`, which is synced before the log."""
        if self.values is not None:
            raise ValueError("the log has a value log")
        self.values = values
        lsm_store_ptr(<void**>&self.c.values, values.c)
        return 0

    def attach_watermark(self, SyncWatermark watermark not None, LogWriter previous):
        """Take the watermark over from `previous`: this is the active log from now on."""
        if previous is not None:
            previous.detach_watermark()
        self.watermark = watermark
        log_set_watermark(self.c, &watermark.c if watermark.c.page != NULL else NULL)

    def detach_watermark(self):
        """Give the watermark up; from now on the synced offset is stored in the head of the log."""
        if not self.closed:
            log_set_watermark(self.c, NULL)
        self.watermark = None

    def append(self, bytes payload, uint64_t first_seq, uint32_t count):
        """Append one record with an encoded batch. The engine calls log_reserve and log_commit instead."""
        cdef Status st
        cdef char* place
        if self.closed:
            raise ValueError("the log is closed")
        status_clear(&st)
        place = log_reserve(self.c, len(payload), &st)
        if place != NULL:
            memcpy(place, <const char*>payload, len(payload))
            log_commit(self.c, len(payload), first_seq, count, &st)
        raise_status(&st, self.path)

    def close(self):
        """Unmap and close the file; it keeps its preallocated tail."""
        if self.closed:
            return
        self.detach_watermark()
        self.closed = True
        log_unmap(self.c)
        file_close(self.c.fd)
        self.c.fd = -1

    def __dealloc__(self):
        if self.c == NULL:
            return
        log_unmap(self.c)
        if self.c.fd >= 0:
            file_close(self.c.fd)
        free(self.c.scratch)
        pthread_mutex_destroy(&self.c.sync_mutex)
        pthread_cond_destroy(&self.c.sync_done)
        free(self.c)
