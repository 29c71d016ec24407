import os

cimport cython
from libc.errno cimport EEXIST, EINVAL, EOPNOTSUPP, errno
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.port.coding cimport get_u32, get_u64, get_varint, put_u32, put_u64
from lsmkv_ext.port.file cimport (
    OPEN_CREATE,
    OPEN_READ,
    file_allocate,
    file_close,
    file_datasync,
    file_next_data,
    file_open,
    file_pread,
    file_pwrite,
    file_size,
)
from lsmkv_ext.memtable.memtable cimport (
    MemC,
    Memtable,
    mem_delete_range,
    mem_insert,
    mem_reserve,
    mem_value_place,
    mem_weight,
)
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.status cimport (
    ST_CORRUPT,
    ST_OK,
    Status,
    fail_corrupt,
    fail_io,
    fail_memory,
    raise_status,
    status_clear,
)
from lsmkv_ext.wal.sync_watermark cimport WatermarkC, SyncWatermark, watermark_store
from lsmkv_ext.limits cimport LARGE_VALUE, MAX_KEY, MAX_SEQ, MAX_VALUE
from lsmkv_ext.batch cimport OP_DELETE, OP_DELETE_RANGE, OP_PUT
from lsmkv_ext.port.atomics cimport lsm_fetch_add32, lsm_load32, lsm_load64, lsm_store64
from lsmkv_ext.port.clock cimport lsm_now_ns
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

from lsmkv_ext.errors import Error, SyncError
from lsmkv_ext.errors import IOError as LsmIOError
from lsmkv_ext.wal.sync_watermark import read_watermark_beside

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* addr, size_t n, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t n)
    int madvise(void* addr, size_t n, int advice)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MADV_DONTNEED
    void* MAP_FAILED

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int ftruncate(int fd, long size)

cdef extern from * nogil:
    """
    #define LOG_STEP (256 << 10)    /* prefaulted at a time, at most */
    static const char lsm_zeros[LOG_STEP];
    """
    const char lsm_zeros[]
    enum:
        LOG_STEP

cdef const char* MAGIC = b"lsmkvlog"

cdef enum:
    VERSION = 1
    PAGE = 4096
    MAX_PATIENCE_NS = 1000000

# --- checksums: the log's number and the record's place are part of them, so a stale or moved record never passes -------

cdef inline uint32_t header_checksum(const char* header, uint64_t number, uint64_t offset) noexcept nogil:
    return <uint32_t>xxh3(header + 4, LOG_RECORD_HEADER - 4, (number << 32) ^ offset ^ <uint64_t>0x6C6F672D68656164)


cdef inline uint32_t payload_checksum(const char* payload, size_t n, uint64_t number) noexcept nogil:
    return <uint32_t>xxh3(payload, n, number ^ <uint64_t>0x6C6F672D64617461)


cdef inline size_t padded(size_t n) noexcept nogil:
    return (n + 7) & ~<size_t>7


# --- writing ---------------------------------------------------------------------------------------------------------

cdef inline uint64_t whole_pages(uint64_t n) noexcept nogil:
    return (n + PAGE - 1) & ~<uint64_t>(PAGE - 1)


cdef int allocate(LogC* log, uint64_t end, Status* st) noexcept nogil:
    """Makes the file at least `end` bytes long, and by a quarter longer than it was: a small database has a small log, a large
    one seldom asks."""
    cdef uint64_t step = min(max(whole_pages(log.allocated // 4), <uint64_t>LOG_FIRST_ALLOCATION), <uint64_t>LOG_ALLOCATION)
    cdef uint64_t grown = max(end, log.allocated + step)
    cdef int err = file_allocate(log.fd, log.allocated, grown - log.allocated)
    if err != 0:
        return fail_io(st, b"log: no room", err)
    log.allocated = grown
    return ST_OK


cdef int map_window(LogC* log, size_t n, Status* st) noexcept nogil:
    """Allocates and maps the file from the page of `offset` on, for at least n bytes behind it."""
    cdef uint64_t start = log.offset & ~<uint64_t>(PAGE - 1)
    cdef uint64_t need = whole_pages(log.offset - start + n)
    cdef uint64_t size
    cdef void* p
    if start + need > log.allocated and allocate(log, start + need, st) != ST_OK:
        return st.code
    size = min(log.allocated - start, max(need, <uint64_t>LOG_WINDOW))
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd, <long>start)
    if p == MAP_FAILED:
        return fail_io(st, b"log: mmap", errno)
    if log.window != NULL:
        munmap(log.window, log.window_size)
    log.window = <char*>p
    log.window_start = start
    log.window_size = size
    # The page that `offset` is in may hold records.
    log.prefaulted = whole_pages(log.offset)
    return ST_OK


cdef uint64_t prefault_unit(LogC* log) noexcept nogil:
    """How much one write call prefaults, and with `step` how much to prefault. What one call writes the kernel keeps, and writes back, as
    one: so page by page where records are synced as they come, else in steps that grow."""
    cdef uint64_t syncs = lsm_load64(&log.n_syncs)
    cdef bint synced = syncs != log.syncs_then
    log.syncs_then = syncs
    if synced or log.step == 0:
        log.step = LOG_FIRST_STEP
        return PAGE
    if log.step < LOG_STEP:
        log.step *= 2
    return log.step


cdef int prefault(LogC* log, size_t n, Status* st) noexcept nogil:
    """Makes room for n bytes behind `offset`: in the file, in the window, in the page cache."""
    cdef uint64_t unit, goal, part
    cdef int err
    if log.window == NULL or log.offset - log.window_start + n > log.window_size:
        if map_window(log, n, st) != ST_OK:
            return st.code
    unit = prefault_unit(log)
    goal = whole_pages(log.offset + n + log.step)
    if goal > log.window_start + log.window_size:
        goal = log.window_start + log.window_size
    while log.prefaulted < goal:
        part = goal - log.prefaulted if goal - log.prefaulted < unit else unit
        err = file_pwrite(log.fd, lsm_zeros, part, log.prefaulted)
        if err != 0:
            return fail_io(st, b"log: no room", err)
        log.prefaulted += part
    return ST_OK


cdef char* log_reserve(LogC* log, size_t n, Status* st) noexcept nogil:
    cdef size_t total = LOG_RECORD_HEADER + padded(n)
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
    cdef size_t total = LOG_RECORD_HEADER + padded(n)
    cdef char* record
    cdef char* payload
    cdef int err
    record = log.window + (log.offset - log.window_start) if log.mapped else log.scratch
    payload = record + LOG_RECORD_HEADER
    memset(payload + n, 0, padded(n) - n)
    put_u32(record + 4, payload_checksum(payload, n, log.number))
    put_u32(record + 8, <uint32_t>n)
    put_u32(record + 12, LOG_BATCH | count << 8)
    put_u64(record + 16, first_seq)
    put_u64(record + 24, lsm_load64(&log.synced))
    put_u32(record, header_checksum(record, log.number, log.offset))
    if not log.mapped:
        err = file_pwrite(log.fd, record, total, log.offset)
        if err != 0:
            # A half-written record must not lie under the next one; if even this fails, that one overwrites it.
            ftruncate(log.fd, <long>log.offset)
            return fail_io(st, b"log: write", err)
    lsm_store64(&log.offset, log.offset + total)
    return ST_OK


cdef void encode_slot(char* slot, uint64_t synced, uint64_t count, uint64_t number) noexcept nogil:
    put_u64(slot, synced)
    put_u64(slot + 8, count)
    put_u64(slot + 16, xxh3(slot, 16, number ^ <uint64_t>0x6C6F672D736C6F74))


cdef void store_slot(LogC* log, uint64_t synced) noexcept nogil:
    """Notes what is known synced in the older of the head's two slots: a torn store leaves the other one good. Not synced itself,
    so it may lag; it never lies."""
    cdef char slot[24]
    cdef uint64_t place = LOG_SLOT_B if log.slot_count % 2 == 0 else LOG_SLOT_A
    encode_slot(slot, synced, log.slot_count + 1, log.number)
    log.slot_count += 1
    if log.head != NULL:
        memcpy(log.head + place, slot, 24)
    else:
        # A failure here only makes the watermark lag: every later record's header carries the offset too.
        file_pwrite(log.fd, slot, 24, place)


cdef void await_group(LogC* log) noexcept nogil:
    """Those just served are about to write again: waiting for them no longer than an fdatasync takes lets one serve them all.
    A lone writer never waits."""
    cdef uint64_t group_wait_ns, deadline
    if log.group_size < 2 or log.n_syncs == 0:
        return
    group_wait_ns = log.sync_ns // log.n_syncs
    deadline = lsm_now_ns() + (group_wait_ns if group_wait_ns < MAX_PATIENCE_NS else MAX_PATIENCE_NS)
    while lsm_load32(&log.waiting) < log.group_size and lsm_now_ns() < deadline:
        sched_yield()


cdef int sync_once(LogC* log) noexcept nogil:
    """The leader's part: one fdatasync for everybody whose record is in the log by then. Takes and gives back the held mutex."""
    cdef uint64_t end, began
    cdef int served, err
    log.leading = True
    pthread_mutex_unlock(&log.sync_mutex)
    await_group(log)
    served = lsm_load32(&log.waiting)
    lsm_fetch_add32(&log.waiting, -served)
    end = lsm_load64(&log.offset)
    began = lsm_now_ns()
    err = file_datasync(log.fd)
    pthread_mutex_lock(&log.sync_mutex)
    log.group_size = served if served > log.group_size else log.group_size - (log.group_size - served + 3) // 4
    if err != 0:
        # The kernel may have dropped the dirty pages: a second fdatasync could succeed and mean nothing.
        log.sync_error = err
    else:
        lsm_store64(&log.synced, end)
        if log.watermark != NULL:
            watermark_store(log.watermark, log.number, end)
        else:
            store_slot(log, end)
        # Under the mutex, but read without it.
        lsm_store64(&log.n_syncs, log.n_syncs + 1)
        lsm_store64(&log.sync_ns, log.sync_ns + lsm_now_ns() - began)
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
    """The watermark goes to another log, or comes from one; what it said of this log moves into its head."""
    pthread_mutex_lock(&log.sync_mutex)
    if log.watermark != NULL and lsm_load64(&log.synced) > LOG_HEAD_SIZE:
        store_slot(log, lsm_load64(&log.synced))
    log.watermark = watermark
    pthread_mutex_unlock(&log.sync_mutex)


cdef int write_head(LogC* log, uint64_t previous_last_seq) noexcept nogil:
    """The head page and its sync. Slot B says from the start that no record is synced: a head without a good slot is damaged."""
    cdef char head[LOG_HEAD_SIZE]
    cdef int err
    memset(head, 0, LOG_HEAD_SIZE)
    memcpy(head, MAGIC, 8)
    put_u32(head + 8, VERSION)
    put_u64(head + 16, log.number)
    put_u64(head + 24, previous_last_seq)
    put_u64(head + 32, xxh3(head, 32, <uint64_t>0x6C6F672D70616765))
    encode_slot(head + LOG_SLOT_B, LOG_HEAD_SIZE, 1, log.number)
    log.slot_count = 1
    err = file_pwrite(log.fd, head, LOG_HEAD_SIZE, 0)
    if err == 0:
        log.sync_error = file_datasync(log.fd)
        err = log.sync_error
    return err


cdef void log_unmap(LogC* log) noexcept nogil:
    if log.head != NULL:
        munmap(log.head, PAGE)
        log.head = NULL
    if log.window != NULL:
        munmap(log.window, log.window_size)
        log.window = NULL
        log.window_size = 0
        log.prefaulted = 0


cdef int begin_log(LogC* log, uint64_t previous_last_seq) noexcept nogil:
    """Allocates, writes, syncs and maps the head. Where the file system cannot, the log becomes a written one."""
    cdef void* head
    cdef int err
    if log.mapped:
        err = file_allocate(log.fd, 0, LOG_HEAD_SIZE)
        if err == EOPNOTSUPP or err == EINVAL:
            log.mapped = False
        elif err != 0:
            return err
    err = write_head(log, previous_last_seq)
    if err == 0 and log.mapped:
        head = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd, 0)
        if head == MAP_FAILED:
            log.mapped = False
        else:
            log.head = <char*>head
    return err


@cython.no_gc       # what it refers to refers to nothing
cdef class LogWriter:
    """Creates and appends to one log file. `mode` is "mmap" or "write"; where the file system cannot map or preallocate, "mmap"
    becomes "write" (see `.mode`)."""

    def __cinit__(self, path, uint64_t number, *, mode="mmap", uint64_t previous_last_seq=0, seed=0):
        cdef int err, fd
        cdef Status st
        cdef LogC* c
        cdef bytes temporary = os.fsencode(path) + b".tmp"
        cdef const char* cpath = temporary
        if mode not in ("mmap", "write"):
            raise ValueError(f'log mode must be "mmap" or "write", not {mode!r}')
        status_clear(&st)
        self.closed = True
        self.path = os.fsdecode(path)
        self.number = number
        self.c = c = <LogC*>calloc(1, sizeof(LogC))
        if c == NULL:
            raise MemoryError("log")
        c.fd = -1
        pthread_mutex_init(&c.sync_mutex, NULL)
        pthread_cond_init(&c.sync_done, NULL)
        # The rename below would replace it.
        err = EEXIST if os.path.lexists(self.path) else file_open(cpath, OPEN_CREATE, &fd)
        if err:
            fail_io(&st, b"log: create", err)
            raise_status(&st, self.path)
        c.fd = fd
        self.closed = False
        c.number = number
        c.offset = LOG_HEAD_SIZE
        c.synced = LOG_HEAD_SIZE
        c.allocated = LOG_HEAD_SIZE
        c.mapped = mode == "mmap"
        with nogil:
            err = begin_log(c, previous_last_seq)
        try:
            if err:
                fail_io(&st, b"log: create", err)
                raise_status(&st, self.path)
            # Only a whole head gets the log's name: what lies under that name without one was damaged.
            os.rename(temporary, self.path)
        except OSError as error:
            self._discard(temporary)
            if c.sync_error:
                raise SyncError(c.sync_error, f"fdatasync: {os.strerror(c.sync_error)}", self.path) from error
            if not isinstance(error, Error):
                raise LsmIOError(error.errno, f"log: {error.strerror}", self.path) from error
            raise

    def _discard(self, bytes name):
        log_unmap(self.c)
        file_close(self.c.fd)
        self.c.fd = -1
        self.closed = True
        try:
            os.unlink(name)
        except OSError as error:
            import logging
            logging.getLogger("lsmkv").warning("could not remove a log that failed to start: %s", error)

    @property
    def mode(self):
        return "mmap" if self.c.mapped else "write"

    @property
    def size(self):
        """Bytes up to the end of the last record."""
        return lsm_load64(&self.c.offset)

    @property
    def synced(self):
        return lsm_load64(&self.c.synced)

    @property
    def syncs(self):
        return lsm_load64(&self.c.n_syncs)

    @property
    def sync_ns(self):
        return lsm_load64(&self.c.sync_ns)

    def sync(self):
        """Everything appended so far survives a power cut once this returns."""
        cdef Status st
        cdef uint64_t upto = lsm_load64(&self.c.offset)
        cdef LogC* c = self.c
        if self.closed:
            raise ValueError("the log is closed")
        status_clear(&st)
        with nogil:
            log_sync(c, upto, &st)
        raise_status(&st, self.path)

    def attach_watermark(self, SyncWatermark watermark, LogWriter previous):
        """This log is in use from now on, and not `previous`: the watermark of what is synced is about this one."""
        if previous is not None:
            previous.detach_watermark()
        self.watermark = watermark
        log_set_watermark(self.c, &watermark.c if watermark.c.page != NULL else NULL)

    def detach_watermark(self):
        if not self.closed:
            log_set_watermark(self.c, NULL)
        self.watermark = None

    def append(self, bytes payload, uint64_t first_seq, uint32_t count):
        """One record from an encoded batch (the engine appends without this)."""
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
        """Unmaps and closes; the file stays, with its preallocated tail."""
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


# --- reading ---------------------------------------------------------------------------------------------------------

cdef enum:
    LOG_READ_WINDOW = 1 << 20

ctypedef struct LogFile:       # a log that is read through a window, and where the reader stands
    int fd
    char* window
    size_t capacity             # of the window
    uint64_t start              # the window holds the file's bytes [start, start + held)
    size_t held
    uint64_t size
    uint64_t number
    uint64_t previous_last_seq
    uint64_t known_synced
    uint64_t offset
    const char* torn            # why reading stopped before the end, or NULL

ctypedef struct LogRecord:
    uint64_t offset
    uint64_t first_seq
    uint32_t count
    const char* payload         # in the window: until another part of the log is looked at
    uint32_t size
    uint64_t synced

ctypedef struct Batch:          # a record's operations, as far as they were not yet taken
    const char* p
    const char* end
    uint32_t left
    uint64_t seq


cdef int log_file_load(LogFile* file, const char* path, Status* st) noexcept nogil:
    cdef int err = file_open(path, OPEN_READ, &file.fd)
    if err:
        file.fd = -1
        return fail_io(st, b"log: open", err)
    err = file_size(file.fd, &file.size)
    return fail_io(st, b"log: size", err) if err else ST_OK


cdef void log_file_free(LogFile* file) noexcept nogil:
    # Descriptors of ours are above 2: an file of zeros, as it is where its reader came to nothing, has none.
    if file.fd > 2:
        file_close(file.fd)
    file.fd = -1
    free(file.window)
    file.window = NULL


cdef void log_file_release_window(LogFile* file) noexcept nogil:
    """Gives back a window that is larger than usual. What was given out of it is void."""
    if file.capacity > LOG_READ_WINDOW:
        free(file.window)
        file.window = NULL
        file.capacity = 0
        file.held = 0


cdef void log_file_release_part(LogFile* file, const char* start, const char* stop) noexcept nogil:
    """The same for a part of such a window, as whole pages."""
    cdef size_t first = (<size_t>start + PAGE - 1) & ~<size_t>(PAGE - 1)
    cdef size_t end = <size_t>stop & ~<size_t>(PAGE - 1)
    if file.capacity > LOG_READ_WINDOW and end > first:
        madvise(<void*>first, end - first, MADV_DONTNEED)


cdef const char* log_file_bytes(LogFile* file, uint64_t at, uint64_t n, Status* st) noexcept nogil:
    """The n bytes at `at`, all of them in front of the file's end; NULL with *st set. What was given out before is void."""
    cdef size_t got
    cdef uint64_t want
    cdef int err
    if at >= file.start and at + n <= file.start + file.held:
        return file.window + (at - file.start)
    want = min(max(n, <uint64_t>LOG_READ_WINDOW), file.size - at)
    # Back to the usual size behind a large record: what follows may be many small ones.
    if want > file.capacity or file.capacity > max(want, <uint64_t>LOG_READ_WINDOW):
        free(file.window)
        file.held = 0
        file.capacity = 0
        file.window = <char*>malloc(want if want else 1)
        if file.window == NULL:
            fail_memory(st, b"log")
            return NULL
        file.capacity = want
    file.start = at
    file.held = 0
    err = file_pread(file.fd, file.window, want, at, &got)
    if err:
        fail_io(st, b"log: read", err)
        return NULL
    file.held = got
    if got < n:
        fail_corrupt(st, b"the log became shorter while it was read", file.number, at + got)
        return NULL
    return file.window


cdef bint slot_value(const LogFile* file, const char* head, uint64_t place, uint64_t* synced) noexcept nogil:
    cdef const char* slot = head + place
    if get_u64(slot + 8) == 0:
        return False
    if xxh3(slot, 16, file.number ^ <uint64_t>0x6C6F672D736C6F74) != get_u64(slot + 16):
        return False
    synced[0] = get_u64(slot)
    return True


cdef inline bint all_zero(const char* p, uint64_t start, uint64_t stop) noexcept nogil:
    # Each byte equals the one before it, and the first is zero: memcmp is many times faster than a loop that looks at each.
    return start >= stop or (p[start] == 0 and memcmp(p + start, p + start + 1, stop - start - 1) == 0)


cdef int log_file_open(LogFile* file, uint64_t number, Status* st) noexcept nogil:
    """Checks the head. It was synced before the log got its name, so a crash explains no damage here."""
    cdef const char* head
    cdef uint64_t synced
    cdef int slots = 0
    file.known_synced = LOG_HEAD_SIZE
    file.offset = LOG_HEAD_SIZE
    if file.size < LOG_HEAD_SIZE:
        return fail_corrupt(st, b"the log ends within its head page", number, file.size)
    head = log_file_bytes(file, 0, LOG_HEAD_SIZE, st)
    if head == NULL:
        return st.code
    if memcmp(head, MAGIC, 8) != 0 or xxh3(head, 32, <uint64_t>0x6C6F672D70616765) != get_u64(head + 32):
        return fail_corrupt(st, b"log head does not match its checksum", number, 0)
    if get_u32(head + 8) != VERSION:
        return fail_corrupt(st, b"log version is not known", number, 8)
    if number and get_u64(head + 16) != number:
        return fail_corrupt(st, b"log carries another log's number", number, 16)
    if not (all_zero(head, 40, LOG_SLOT_A) and all_zero(head, LOG_SLOT_A + 24, LOG_SLOT_B)
            and all_zero(head, LOG_SLOT_B + 24, LOG_HEAD_SIZE)):
        return fail_corrupt(st, b"log head holds bytes where none belong", number, 40)
    file.number = get_u64(head + 16)
    file.previous_last_seq = get_u64(head + 24)
    if slot_value(file, head, LOG_SLOT_A, &synced):
        slots += 1
        file.known_synced = max(file.known_synced, synced)
    if slot_value(file, head, LOG_SLOT_B, &synced):
        slots += 1
        file.known_synced = max(file.known_synced, synced)
    if slots == 0:
        # A store that a kill cut short spoils one slot, never both.
        return fail_corrupt(st, b"log head does not say what is synced", number, LOG_SLOT_A)
    return ST_OK


cdef const char* record_problem(LogFile* file, LogRecord* record, Status* st) noexcept nogil:
    """NULL and *record filled, or what is wrong at file.offset ("" for the clean end of the log). What could not be read at all
    is in *st, and no problem of the record's."""
    cdef uint64_t left = file.size - file.offset
    cdef uint64_t whole
    cdef const char* p = log_file_bytes(file, file.offset, min(left, <uint64_t>LOG_RECORD_HEADER), st)
    if p == NULL:
        return b"the log cannot be read"
    if left < LOG_RECORD_HEADER:
        return b"" if all_zero(p, 0, left) else b"a record header is cut short"
    if get_u32(p) != header_checksum(p, file.number, file.offset):
        return b"" if all_zero(p, 0, LOG_RECORD_HEADER) else b"a record header does not match its checksum"
    record.size = get_u32(p + 8)
    whole = LOG_RECORD_HEADER + <uint64_t>padded(record.size)
    if whole > left:
        return b"a record runs over the end of the log"
    if (get_u32(p + 12) & 0xFF) != LOG_BATCH:
        return b"a record is of unknown type"
    p = log_file_bytes(file, file.offset, whole, st)
    if p == NULL:
        return b"the log cannot be read"
    record.payload = p + LOG_RECORD_HEADER
    if get_u32(p + 4) != payload_checksum(record.payload, record.size, file.number):
        return b"a record's payload does not match its checksum"
    if not all_zero(record.payload, record.size, padded(record.size)):
        return b"a record's padding is not zero"
    record.offset = file.offset
    record.count = get_u32(p + 12) >> 8
    record.first_seq = get_u64(p + 16)
    record.synced = get_u64(p + 24)
    return NULL


cdef int only_zeros(LogFile* file, uint64_t at, Status* st) noexcept nogil:
    """1 if nothing but zeros follows, 0 if something does, -1 with *st set. Holes of the file are not read: a log is allocated
    far ahead, and one that claims to be a terabyte must not take minutes."""
    cdef const char* p
    cdef uint64_t n
    while True:
        at = file_next_data(file.fd, at, file.size)
        if at >= file.size:
            return 1
        n = min(<uint64_t>LOG_READ_WINDOW, file.size - at)
        p = log_file_bytes(file, at, n, st)
        if p == NULL:
            return -1
        if not all_zero(p, 0, n):
            return 0
        at += n


cdef int learn_synced(LogFile* file, Status* st) noexcept nogil:
    """Looks behind a bad record for well-formed headers: each carries the offset that was synced when it was written, and so
    tells whether the damage lies below it. (That a record follows proves nothing by itself.)"""
    cdef uint64_t at = (file.offset + 7) & ~<uint64_t>7
    cdef uint64_t i, n
    cdef const char* p
    cdef uint64_t synced
    while True:
        at = file_next_data(file.fd, at, file.size) & ~<uint64_t>7
        if at + LOG_RECORD_HEADER > file.size:
            return ST_OK
        n = min(<uint64_t>LOG_READ_WINDOW, file.size - at)
        p = log_file_bytes(file, at, n, st)
        if p == NULL:
            return st.code
        i = 0
        while i + LOG_RECORD_HEADER <= n:
            if get_u32(p + i + 8) != 0 and get_u32(p + i) == header_checksum(p + i, file.number, at + i):
                synced = get_u64(p + i + 24)
                if synced > file.known_synced and synced <= at + i:
                    file.known_synced = synced
            i += 8
        at += i


cdef int insert_put(LogFile* file, MemC* m, const char* key, size_t klen, const char* value, size_t vlen, uint64_t seq,
                    uint64_t hash) noexcept nogil:
    """mem_insert; a large value moves piece by piece out of the window, which gives up what was moved: it is in memory once."""
    cdef size_t done = 0, part
    cdef char* place
    if vlen < LOG_READ_WINDOW:
        return mem_insert(m, key, klen, value, vlen, seq, OP_PUT, hash)
    if mem_reserve(m, klen, vlen) != 0:
        return -1
    place = mem_value_place(m, klen)
    while done < vlen:
        part = min(vlen - done, <size_t>LOG_READ_WINDOW)
        memcpy(place + done, value + done, part)
        done += part
        log_file_release_part(file, value, value + done)
    return mem_insert(m, key, klen, NULL, vlen, seq, OP_PUT, hash)


cdef int next_operation(LogFile* file, Batch* batch, MemC* m, uint64_t seed, Status* st) noexcept nogil:
    """Decodes one operation, and inserts it where m is given. The checksum has passed, so a bad one is corruption."""
    cdef const char* key
    cdef const char* p = batch.p
    cdef const char* end = batch.end
    cdef uint64_t klen, vlen
    cdef int op, failed = 0
    if p >= end:
        return fail_corrupt(st, b"a batch holds fewer operations than it says", 0, 0)
    op = p[0]
    key = get_varint(p + 1, end, &klen)
    if key == NULL or op < OP_PUT or op > OP_DELETE_RANGE or klen > MAX_KEY or klen > <uint64_t>(end - key):
        return fail_corrupt(st, b"a batch holds a malformed key", 0, 0)
    p = key + klen
    if op == OP_DELETE:
        if m != NULL:
            failed = mem_insert(m, key, klen, NULL, 0, batch.seq, op, xxh3(key, klen, seed))
    else:
        p = get_varint(p, end, &vlen)
        if p == NULL or vlen > (MAX_VALUE if op == OP_PUT else MAX_KEY) or vlen > <uint64_t>(end - p):
            return fail_corrupt(st, b"a batch holds a malformed value", 0, 0)
        if m != NULL and op == OP_PUT:
            failed = insert_put(file, m, key, klen, p, vlen, batch.seq, xxh3(key, klen, seed))
        elif m != NULL:
            failed = mem_delete_range(m, key, klen, p, vlen, batch.seq)
        p += vlen
    if failed:
        return fail_memory(st, b"memtable")
    batch.p = p
    batch.seq += 1
    batch.left -= 1
    if batch.left == 0 and p != end:
        return fail_corrupt(st, b"a batch is longer than its operations", 0, 0)
    return ST_OK


cdef int batch_open(Batch* batch, const LogRecord* record, Status* st) noexcept nogil:
    batch.p = record.payload
    batch.end = record.payload + record.size
    batch.left = record.count
    batch.seq = record.first_seq
    if record.count == 0 and record.size:
        return fail_corrupt(st, b"a batch is longer than its operations", 0, 0)
    return ST_OK


cdef int batch_check(const LogRecord* record, Status* st) noexcept nogil:
    """Decodes a whole batch and inserts nothing."""
    cdef Batch batch
    if batch_open(&batch, record, st) != ST_OK:
        return st.code
    while batch.left:
        if next_operation(NULL, &batch, NULL, 0, st) != ST_OK:
            return st.code
    return ST_OK


cdef int check_records(LogFile* file, bint salvage, uint64_t* counts, Status* st) noexcept nogil:
    """counts: records, operations, first seq, last seq."""
    cdef LogRecord record
    cdef const char* problem
    cdef uint64_t last = 0
    cdef int blank
    while True:
        problem = record_problem(file, &record, st)
        if st.code != ST_OK:
            return st.code
        if problem != NULL:
            break
        if last and record.first_seq != last + 1:
            problem = b"a record is out of sequence"
            break
        if record.first_seq >= MAX_SEQ - record.count:
            problem = b"a record's sequence numbers are beyond their limit"
            break
        if record.synced > file.known_synced and record.synced <= record.offset:
            file.known_synced = record.synced
        if batch_check(&record, st) != ST_OK:
            if not salvage:
                st.offset = record.offset
                st.file_number = file.number
                return st.code
            problem = st.what
            status_clear(st)
            break
        if counts[0] == 0:
            counts[2] = record.first_seq
        counts[0] += 1
        counts[1] += record.count
        last = record.first_seq + record.count - 1
        counts[3] = last
        file.offset += LOG_RECORD_HEADER + padded(record.size)
    if problem[0] == 0:
        blank = only_zeros(file, file.offset, st)
        if blank < 0:
            return st.code
        if blank:
            # Nothing follows, but a synced record must not have been blanked out either.
            if file.offset < file.known_synced and not salvage:
                return fail_corrupt(st, b"synced log records are missing", file.number, file.offset)
            return ST_OK
        problem = b"a hole in the log"
    if learn_synced(file, st) != ST_OK:
        return st.code
    file.torn = problem
    if file.offset < file.known_synced and not salvage:
        return fail_corrupt(st, problem, file.number, file.offset)
    return ST_OK


def check_log(path, uint64_t number, *, bint salvage=False):
    """Reads a log to its end and says what is in it. Damage below the known-synced offset is a CorruptionError (unless
    `salvage`); above it, it is the torn tail: left out, and described in the answer. "bytes" is where the good records end."""
    cdef LogFile file
    cdef Status st
    cdef uint64_t counts[4]
    cdef bytes encoded = os.fsencode(path)
    cdef const char* cpath = encoded
    # Before the log, which may be growing: what the watermark says of it must be in what is read then.
    noted = read_watermark_beside(path)
    cdef uint64_t watermark_number = noted[0] if noted else 0
    cdef uint64_t watermark_synced = noted[1] if noted else 0
    memset(&file, 0, sizeof(file))
    memset(counts, 0, sizeof(counts))
    status_clear(&st)
    try:
        with nogil:
            if log_file_load(&file, cpath, &st) == ST_OK and log_file_open(&file, number, &st) == ST_OK:
                if watermark_number == file.number and watermark_synced > file.known_synced:
                    file.known_synced = watermark_synced
                check_records(&file, salvage, counts, &st)
        if salvage and st.code == ST_CORRUPT and counts[0] == 0:
            # Without its head a log is worth nothing; what it lost is in the answer.
            file.torn = st.what
            file.offset = 0
            status_clear(&st)
        raise_status(&st, path)
        torn = None if file.torn == NULL else file.torn.decode()
        return {
            "records": counts[0],
            "entries": counts[1],
            "first_seq": counts[2],
            "last_seq": counts[3],
            "bytes": file.offset,
            "file_size": file.size,
            "torn_reason": torn,
            "torn_offset": None if torn is None else file.offset,
            "torn_bytes": 0 if torn is None else file.size - min(file.size, file.offset),
            "previous_last_seq": file.previous_last_seq,
            "known_synced": file.known_synced,
        }
    finally:
        log_file_free(&file)


cdef uint64_t building_cost(const Batch* batch) noexcept nogil:
    """What a flush takes besides for a block of the value that comes next, where that is a large one: the block, and the block
    compressed."""
    cdef const char* p
    cdef uint64_t n = 0
    if batch.end - batch.p < LOG_READ_WINDOW or batch.p[0] != OP_PUT:
        return 0
    p = get_varint(batch.p + 1, batch.end, &n)
    if p == NULL or n > <uint64_t>(batch.end - p) or get_varint(p + n, batch.end, &n) == NULL or n > LARGE_VALUE:
        return 0
    return 2 * n


cdef int fill(LogFile* file, Batch* batch, uint64_t stop, Memtable memtable, uint64_t room, Status* st) noexcept nogil:
    """Inserts operations up to `stop`, or until the memtable outweighs the log's bytes that went into it by more than `room`.
    (While a record lies in memory that is larger than the usual window, it takes the place of those bytes.)"""
    cdef LogRecord record
    cdef MemC* m = memtable.c
    cdef uint64_t began = file.offset - <uint64_t>(batch.end - batch.p)
    cdef uint64_t gone
    while True:
        while batch.left:
            gone = file.offset - <uint64_t>(batch.end - batch.p) - began if file.capacity <= LOG_READ_WINDOW else 0
            if mem_weight(m) + (building_cost(batch) if m.n_entries else 0) > room + gone:
                log_file_release_part(file, file.window, batch.p)
                return ST_OK
            if next_operation(file, batch, m, memtable.seed, st) != ST_OK:
                return st.code
        batch.p = batch.end = NULL
        log_file_release_window(file)  # before the memtable is written, which takes memory of its own
        if file.offset >= stop:
            return ST_OK
        if record_problem(file, &record, st) != NULL or batch_open(batch, &record, st) != ST_OK:
            if st.code == ST_OK:
                fail_corrupt(st, b"the log changed while it was read", file.number, file.offset)
            return st.code
        file.offset += LOG_RECORD_HEADER + padded(record.size)


cdef class LogReader:
    """Puts the operations of a log that was checked, up to the offset `stop`, into memtables: as many as it takes."""
    cdef LogFile file
    cdef Batch batch
    cdef uint64_t stop
    cdef readonly str path

    def __cinit__(self, path, uint64_t number, uint64_t stop):
        cdef Status st
        cdef bytes encoded = os.fsencode(path)
        self.path = os.fsdecode(path)
        self.stop = stop
        status_clear(&st)
        if log_file_load(&self.file, encoded, &st) == ST_OK:
            log_file_open(&self.file, number, &st)
        raise_status(&st, self.path)

    def __dealloc__(self):
        log_file_free(&self.file)

    @property
    def done(self):
        return self.batch.left == 0 and self.file.offset >= self.stop

    @property
    def taken(self):
        """Bytes of the log that are in memtables."""
        return self.file.offset - (self.batch.end - self.batch.p)

    def fill(self, Memtable memtable not None, uint64_t room):
        """Inserts until all is done, or `memtable` weighs over `room` bytes more than the log's bytes that this call put into it.
        A batch may be cut in two by that: who publishes the memtables has to publish all of them at once."""
        cdef Status st
        status_clear(&st)
        with nogil:
            fill(&self.file, &self.batch, self.stop, memtable, room, &st)
        raise_status(&st, self.path)


def replay_log(path, uint64_t number, Memtable memtable not None):
    """Checks a log and reads all of it into one memtable, however large that gets; returns what `check_log` does."""
    found = check_log(path, number)
    LogReader(path, number, found["bytes"]).fill(memtable, <uint64_t>1 << 62)
    return found


OP_NAMES = {OP_PUT: "put", OP_DELETE: "delete", OP_DELETE_RANGE: "delete_range"}


cdef tuple take_operation(Batch* batch):
    """(op, key, value or None, seq) of a batch that was checked, which moves on to its next one."""
    cdef const char* p
    cdef uint64_t klen, vlen
    cdef int op = batch.p[0]
    p = get_varint(batch.p + 1, batch.end, &klen)
    key = p[:klen]
    p += klen
    value = None
    if op != OP_DELETE:
        p = get_varint(p, batch.end, &vlen)
        value = p[:vlen]
        p += vlen
    batch.p = p
    batch.left -= 1
    batch.seq += 1
    return OP_NAMES[op], key, value, batch.seq - 1


def decode_batch(bytes payload, uint32_t count, uint64_t first_seq):
    """[(op, key, value or None, seq)] of one record's payload."""
    cdef LogRecord record
    cdef Batch batch
    cdef Status st
    status_clear(&st)
    memset(&record, 0, sizeof(record))
    record.payload = payload
    record.size = len(payload)
    record.count = count
    record.first_seq = first_seq
    if batch_check(&record, &st) == ST_OK:
        batch_open(&batch, &record, &st)
    raise_status(&st, None)
    out = []
    while batch.left:
        out.append(take_operation(&batch))
    return out


cdef class LogDump:
    """Iterates over a log: a dict for its head, one per record, and a last one with "problem" where it stops before its end.

    A record's "operations" are read from the log as they are asked for, so they are there only until the next record is:
    millions of them may be in one.
    """
    cdef LogFile file
    cdef uint64_t following         # offset of the record after the last one that was given out; 0: not even the head was
    cdef bint ended
    cdef object path

    def __cinit__(self, path):
        cdef Status st
        cdef bytes encoded = os.fsencode(path)
        self.path = path
        status_clear(&st)
        log_file_load(&self.file, encoded, &st)
        raise_status(&st, path)

    def __dealloc__(self):
        log_file_free(&self.file)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Status st
        status_clear(&st)
        if self.ended:
            raise StopIteration
        if self.following == 0:
            return self._head(&st)
        return self._record(&st)

    cdef dict _head(self, Status* st):
        cdef LogFile* file = &self.file
        log_file_open(file, 0, st)
        raise_status(st, self.path)
        self.following = file.offset
        return {
            "head": True,
            "number": file.number,
            "previous_last_seq": file.previous_last_seq,
            "known_synced": file.known_synced,
            "file_size": file.size,
            "problem": None,
        }

    cdef dict _record(self, Status* st):
        cdef LogFile* file = &self.file
        cdef LogRecord record
        cdef const char* problem
        cdef int blank
        file.offset = self.following
        problem = record_problem(file, &record, st)
        raise_status(st, self.path)
        if problem != NULL:
            self.ended = True
            blank = 0 if problem[0] else only_zeros(file, file.offset, st)
            raise_status(st, self.path)
            if blank:
                raise StopIteration
            return {"offset": file.offset, "problem": problem.decode() or "a hole in the log"}
        batch_check(&record, st)
        raise_status(st, self.path)
        self.following = record.offset + LOG_RECORD_HEADER + padded(record.size)
        return {
            "offset": record.offset,
            "size": LOG_RECORD_HEADER + padded(record.size),
            "first_seq": record.first_seq,
            "count": record.count,
            "synced": record.synced,
            "operations": record_operations(self, &record),
        }


cdef class RecordOperations:
    """Iterates over a record's operations: (op, key, value or None, seq)."""
    cdef LogDump dump
    cdef Batch batch
    cdef uint64_t offset

    def __iter__(self):
        return self

    def __next__(self):
        if self.batch.left == 0:
            raise StopIteration
        if self.dump.file.offset != self.offset:
            raise ValueError("a record's operations must be read before the next record")
        return take_operation(&self.batch)


cdef RecordOperations record_operations(LogDump dump, const LogRecord* record):
    cdef RecordOperations self = RecordOperations.__new__(RecordOperations)
    cdef Status st
    status_clear(&st)
    self.dump = dump
    self.offset = record.offset
    batch_open(&self.batch, record, &st)
    return self
