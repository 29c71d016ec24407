import os

from libc.errno cimport EEXIST, EINVAL, EOPNOTSUPP, errno
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.coding cimport get_u32, get_u64, get_varint, put_u32, put_u64
from lsmkv_ext.file cimport (
    OPEN_CREATE,
    OPEN_READ,
    file_allocate,
    file_close,
    file_datasync,
    file_open,
    file_pread,
    file_pwrite,
    file_size,
)
from lsmkv_ext.memtable cimport MemC, Memtable, mem_delete_range, mem_insert
from lsmkv_ext.native cimport xxh3
from lsmkv_ext.status cimport (
    ST_CORRUPT,
    ST_OK,
    Status,
    fail_corrupt,
    fail_io,
    fail_memory,
    raise_status,
    status_clear,
)
from lsmkv_ext.types cimport (
    MAX_KEY,
    MAX_VALUE,
    OP_DELETE,
    OP_DELETE_RANGE,
    OP_PUT,
    lsm_fetch_add32,
    lsm_load32,
    lsm_load64,
    lsm_now_ns,
    lsm_store64,
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

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* addr, size_t n, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t n)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void* MAP_FAILED

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int ftruncate(int fd, long size)

cdef extern from * nogil:
    """
    #define LOG_STEP (256 << 10)    /* paved at a time, at most */
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

cdef int map_window(LogC* log, size_t n, Status* st) noexcept nogil:
    """Allocates and maps the file from the page of `offset` on, for at least n bytes behind it."""
    cdef uint64_t start = log.offset & ~<uint64_t>(PAGE - 1)
    cdef uint64_t need = log.offset - start + n
    cdef uint64_t size = LOG_WINDOW if need <= LOG_WINDOW else (need + PAGE - 1) & ~<uint64_t>(PAGE - 1)
    cdef void* p
    cdef int err
    cdef uint64_t grown = start + (size if size > LOG_ALLOCATION else LOG_ALLOCATION)
    if start + size > log.allocated:
        err = file_allocate(log.fd, log.allocated, grown - log.allocated)
        if err != 0:
            return fail_io(st, b"log: no room", err)
        log.allocated = grown
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd, <long>start)
    if p == MAP_FAILED:
        return fail_io(st, b"log: mmap", errno)
    if log.window != NULL:
        munmap(log.window, log.window_size)
    log.window = <char*>p
    log.window_start = start
    log.window_size = size
    # The page that `offset` is in may hold records.
    log.paved = (log.offset + PAGE - 1) & ~<uint64_t>(PAGE - 1)
    return ST_OK


cdef uint64_t paving_unit(LogC* log) noexcept nogil:
    """How much one write call paves, and with `step` how much to pave. What one call writes the kernel keeps, and writes back, as
    one: so page by page where records are synced as they come, else in steps that grow."""
    cdef bint synced = log.n_syncs != log.syncs_then
    log.syncs_then = log.n_syncs
    if synced or log.step == 0:
        log.step = LOG_FIRST_STEP
        return PAGE
    if log.step < LOG_STEP:
        log.step *= 2
    return log.step


cdef int pave(LogC* log, size_t n, Status* st) noexcept nogil:
    """Makes room for n bytes behind `offset`: in the file, in the window, in the page cache."""
    cdef uint64_t unit, goal, part
    cdef int err
    if log.window == NULL or log.offset - log.window_start + n > log.window_size:
        if map_window(log, n, st) != ST_OK:
            return st.code
    unit = paving_unit(log)
    goal = (log.offset + n + log.step + PAGE - 1) & ~<uint64_t>(PAGE - 1)
    if goal > log.window_start + log.window_size:
        goal = log.window_start + log.window_size
    while log.paved < goal:
        part = goal - log.paved if goal - log.paved < unit else unit
        err = file_pwrite(log.fd, lsm_zeros, part, log.paved)
        if err != 0:
            return fail_io(st, b"log: no room", err)
        log.paved += part
    return ST_OK


cdef char* log_reserve(LogC* log, size_t n, Status* st) noexcept nogil:
    cdef size_t total = LOG_RECORD_HEADER + padded(n)
    cdef char* grown
    if log.mapped:
        if log.offset + total > log.paved:
            if pave(log, total, st) != ST_OK:
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
    """Notes what is known synced in the older of the two slots: a torn store leaves the other one good. Not synced itself, so
    it may lag; it never lies."""
    cdef char slot[24]
    cdef uint64_t place = LOG_SLOT_B if log.slot_count % 2 == 0 else LOG_SLOT_A
    encode_slot(slot, synced, log.slot_count + 1, log.number)
    log.slot_count += 1
    if log.head != NULL:
        memcpy(log.head + place, slot, 24)
    else:
        # A failure here only makes the note lag: every later record's header carries the offset too.
        file_pwrite(log.fd, slot, 24, place)


cdef void await_company(LogC* log) noexcept nogil:
    """Those just served are about to write again: waiting for them no longer than an fdatasync takes lets one serve them all.
    A lone writer never waits."""
    cdef uint64_t patience, deadline
    if log.company < 2 or log.n_syncs == 0:
        return
    patience = log.sync_ns // log.n_syncs
    deadline = lsm_now_ns() + (patience if patience < MAX_PATIENCE_NS else MAX_PATIENCE_NS)
    while lsm_load32(&log.waiting) < log.company and lsm_now_ns() < deadline:
        sched_yield()


cdef int sync_once(LogC* log) noexcept nogil:
    """The leader's part: one fdatasync for everybody whose record is in the log by then. Takes and gives back the held mutex."""
    cdef uint64_t end, began
    cdef int served, err
    log.leading = True
    pthread_mutex_unlock(&log.sync_mutex)
    await_company(log)
    served = lsm_load32(&log.waiting)
    lsm_fetch_add32(&log.waiting, -served)
    end = lsm_load64(&log.offset)
    began = lsm_now_ns()
    err = file_datasync(log.fd)
    pthread_mutex_lock(&log.sync_mutex)
    log.company = served if served > log.company else log.company - (log.company - served + 3) // 4
    if err != 0:
        # The kernel may have dropped the dirty pages: a second fdatasync could succeed and mean nothing.
        log.sync_error = err
    else:
        lsm_store64(&log.synced, end)
        store_slot(log, end)
        log.n_syncs += 1
        log.sync_ns += lsm_now_ns() - began
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
        log.paved = 0


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
        return self.c.n_syncs

    @property
    def sync_ns(self):
        return self.c.sync_ns

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

ctypedef struct LogImage:       # a whole log in memory, and where the reader stands
    char* data
    uint64_t size
    uint64_t number
    uint64_t previous_last_seq
    uint64_t known_synced
    uint64_t offset
    uint64_t stored_synced      # the largest known-synced offset seen in a record
    const char* torn            # why reading stopped before the end, or NULL

ctypedef struct LogRecord:
    uint64_t offset
    uint64_t first_seq
    uint32_t count
    const char* payload
    uint32_t size
    uint64_t synced


cdef int image_load(LogImage* image, const char* path, Status* st) noexcept nogil:
    cdef int fd
    cdef uint64_t size
    cdef size_t got
    cdef int err = file_open(path, OPEN_READ, &fd)
    if err:
        return fail_io(st, b"log: open", err)
    err = file_size(fd, &size)
    if err == 0:
        image.data = <char*>malloc(size if size else 1)
        if image.data == NULL:
            file_close(fd)
            return fail_memory(st, b"log")
        err = file_pread(fd, image.data, size, 0, &got)
        image.size = got
    file_close(fd)
    if err:
        return fail_io(st, b"log: read", err)
    return ST_OK


cdef bint slot_value(const LogImage* image, uint64_t place, uint64_t* synced) noexcept nogil:
    cdef const char* slot = image.data + place
    if get_u64(slot + 8) == 0:
        return False
    if xxh3(slot, 16, image.number ^ <uint64_t>0x6C6F672D736C6F74) != get_u64(slot + 16):
        return False
    synced[0] = get_u64(slot)
    return True


cdef bint all_zero(const char* p, uint64_t start, uint64_t stop) noexcept nogil:
    cdef uint64_t i
    for i in range(start, stop):
        if p[i]:
            return False
    return True


cdef int image_open(LogImage* image, uint64_t number, Status* st) noexcept nogil:
    """Checks the head. It was synced before the log got its name, so a crash explains no damage here."""
    cdef uint64_t synced
    cdef int slots = 0
    image.known_synced = LOG_HEAD_SIZE
    image.offset = LOG_HEAD_SIZE
    if image.size < LOG_HEAD_SIZE:
        return fail_corrupt(st, b"the log ends within its head page", number, image.size)
    if memcmp(image.data, MAGIC, 8) != 0 or xxh3(image.data, 32, <uint64_t>0x6C6F672D70616765) != get_u64(image.data + 32):
        return fail_corrupt(st, b"log head does not match its checksum", number, 0)
    if get_u32(image.data + 8) != VERSION:
        return fail_corrupt(st, b"log version is not known", number, 8)
    if number and get_u64(image.data + 16) != number:
        return fail_corrupt(st, b"log carries another log's number", number, 16)
    if not (all_zero(image.data, 40, LOG_SLOT_A) and all_zero(image.data, LOG_SLOT_A + 24, LOG_SLOT_B)
            and all_zero(image.data, LOG_SLOT_B + 24, LOG_HEAD_SIZE)):
        return fail_corrupt(st, b"log head holds bytes where none belong", number, 40)
    image.number = get_u64(image.data + 16)
    image.previous_last_seq = get_u64(image.data + 24)
    if slot_value(image, LOG_SLOT_A, &synced):
        slots += 1
        image.known_synced = max(image.known_synced, synced)
    if slot_value(image, LOG_SLOT_B, &synced):
        slots += 1
        image.known_synced = max(image.known_synced, synced)
    if slots == 0:
        # A store that a kill cut short spoils one slot, never both.
        return fail_corrupt(st, b"log head does not say what is synced", number, LOG_SLOT_A)
    return ST_OK


cdef const char* record_problem(LogImage* image, LogRecord* record) noexcept nogil:
    """NULL and *record filled, or what is wrong at image.offset ("" for the clean end of the log)."""
    cdef uint64_t left = image.size - image.offset
    cdef const char* p = image.data + image.offset
    if left < LOG_RECORD_HEADER:
        return b"" if all_zero(p, 0, left) else b"a record header is cut short"
    if get_u32(p) != header_checksum(p, image.number, image.offset):
        return b"" if all_zero(p, 0, LOG_RECORD_HEADER) else b"a record header does not match its checksum"
    record.size = get_u32(p + 8)
    if padded(record.size) > left - LOG_RECORD_HEADER:
        return b"a record runs over the end of the log"
    if (get_u32(p + 12) & 0xFF) != LOG_BATCH:
        return b"a record is of unknown type"
    record.payload = p + LOG_RECORD_HEADER
    if get_u32(p + 4) != payload_checksum(record.payload, record.size, image.number):
        return b"a record's payload does not match its checksum"
    if not all_zero(record.payload, record.size, padded(record.size)):
        return b"a record's padding is not zero"
    record.offset = image.offset
    record.count = get_u32(p + 12) >> 8
    record.first_seq = get_u64(p + 16)
    record.synced = get_u64(p + 24)
    return NULL


cdef void learn_synced(LogImage* image) noexcept nogil:
    """Looks behind a bad record for well-formed headers: each carries the offset that was synced when it was written, and so
    tells whether the damage lies below it. (That a record follows proves nothing by itself.)"""
    cdef uint64_t at = (image.offset + 7) & ~<uint64_t>7
    cdef const char* p
    cdef uint64_t synced
    while at + LOG_RECORD_HEADER <= image.size:
        p = image.data + at
        if get_u32(p + 8) != 0 and get_u32(p) == header_checksum(p, image.number, at):
            synced = get_u64(p + 24)
            if synced > image.known_synced and synced <= at:
                image.known_synced = synced
        at += 8


cdef int payload_walk(const char* payload, size_t size, uint32_t count, uint64_t first_seq, MemC* m, uint64_t seed,
                      uint64_t* n_ops, Status* st) noexcept nogil:
    """Decodes a batch, and inserts it where m is given. The checksum has passed, so a bad op is corruption."""
    cdef const char* p = payload
    cdef const char* end = payload + size
    cdef uint64_t klen, vlen
    cdef uint64_t seq = first_seq
    cdef int op, failed
    cdef uint32_t _i
    for _i in range(count):
        if p >= end:
            return fail_corrupt(st, b"a batch holds fewer operations than it says", 0, 0)
        op = p[0]
        p = get_varint(p + 1, end, &klen)
        if p == NULL or op < OP_PUT or op > OP_DELETE_RANGE or klen > MAX_KEY or klen > <uint64_t>(end - p):
            return fail_corrupt(st, b"a batch holds a malformed key", 0, 0)
        vlen = 0
        if op == OP_DELETE:
            if m != NULL and mem_insert(m, p, klen, NULL, 0, seq, op, xxh3(p, klen, seed)) != 0:
                return fail_memory(st, b"memtable")
            p += klen
        else:
            payload = p
            p = get_varint(p + klen, end, &vlen)
            if p == NULL or vlen > (MAX_VALUE if op == OP_PUT else MAX_KEY) or vlen > <uint64_t>(end - p):
                return fail_corrupt(st, b"a batch holds a malformed value", 0, 0)
            if m != NULL:
                if op == OP_PUT:
                    failed = mem_insert(m, payload, klen, p, vlen, seq, op, xxh3(payload, klen, seed))
                else:
                    failed = mem_delete_range(m, payload, klen, p, vlen, seq)
                if failed:
                    return fail_memory(st, b"memtable")
            p += vlen
        seq += 1
        n_ops[0] += 1
    if p != end:
        return fail_corrupt(st, b"a batch is longer than its operations", 0, 0)
    return ST_OK


cdef int replay(LogImage* image, MemC* m, uint64_t seed, uint64_t expect_seq, bint salvage, uint64_t* counts,
                Status* st) noexcept nogil:
    """counts: records, operations, first seq, last seq, skipped because already known."""
    cdef LogRecord record
    cdef const char* problem
    cdef uint64_t last = 0
    while True:
        problem = record_problem(image, &record)
        if problem != NULL:
            break
        if last and record.first_seq != last + 1:
            problem = b"a record is out of sequence"
            break
        if record.synced > image.known_synced and record.synced <= record.offset:
            image.known_synced = record.synced
        if payload_walk(record.payload, record.size, record.count, record.first_seq, m, seed, &counts[1], st) != ST_OK:
            if st.code == ST_CORRUPT:
                st.offset = record.offset
                st.file_number = image.number
            return st.code
        if counts[0] == 0:
            counts[2] = record.first_seq
        counts[0] += 1
        last = record.first_seq + record.count - 1
        counts[3] = last
        image.offset += LOG_RECORD_HEADER + padded(record.size)
    if problem[0] == 0:
        if all_zero(image.data, image.offset, image.size):
            # Nothing follows, but a synced record must not have been blanked out either.
            if image.offset < image.known_synced and not salvage:
                return fail_corrupt(st, b"synced log records are missing", image.number, image.offset)
            return ST_OK
        problem = b"a hole in the log"
    learn_synced(image)
    image.torn = problem
    if image.offset < image.known_synced and not salvage:
        return fail_corrupt(st, problem, image.number, image.offset)
    return ST_OK


def replay_log(path, uint64_t number, Memtable memtable, *, uint64_t expect_seq=0, bint salvage=False):
    """Reads a log into `memtable` (or only checks it, for None). Damage below the known-synced offset is a CorruptionError
    (unless `salvage`); above it, it is the torn tail: left out and described in the answer."""
    cdef LogImage image
    cdef Status st
    cdef uint64_t counts[5]
    cdef MemC* m = NULL if memtable is None else memtable.c
    cdef uint64_t seed = 0 if memtable is None else memtable.seed
    cdef bytes encoded = os.fsencode(path)
    cdef const char* cpath = encoded
    memset(&image, 0, sizeof(image))
    memset(counts, 0, sizeof(counts))
    status_clear(&st)
    try:
        with nogil:
            if image_load(&image, cpath, &st) == ST_OK and image_open(&image, number, &st) == ST_OK:
                replay(&image, m, seed, expect_seq, salvage, counts, &st)
        if salvage and st.code == ST_CORRUPT and counts[0] == 0:
            # Without its head a log is worth nothing; what it lost is in the answer.
            image.torn = st.what
            image.offset = 0
            status_clear(&st)
        raise_status(&st, path)
        torn = None if image.torn == NULL else image.torn.decode()
        return {
            "records": counts[0],
            "entries": counts[1],
            "first_seq": counts[2],
            "last_seq": counts[3],
            "bytes": image.offset,
            "file_size": image.size,
            "torn_reason": torn,
            "torn_offset": None if torn is None else image.offset,
            "torn_bytes": 0 if torn is None else image.size - min(image.size, image.offset),
            "previous_last_seq": image.previous_last_seq,
            "known_synced": image.known_synced,
        }
    finally:
        free(image.data)


OP_NAMES = {OP_PUT: "put", OP_DELETE: "delete", OP_DELETE_RANGE: "delete_range"}


def decode_batch(bytes payload, uint32_t count, uint64_t first_seq):
    """[(op, key, value or None, seq)] of one record's payload."""
    cdef const char* p = payload
    cdef const char* end = p + len(payload)
    cdef uint64_t klen, vlen, n_ops = 0
    cdef Status st
    status_clear(&st)
    payload_walk(p, len(payload), count, first_seq, NULL, 0, &n_ops, &st)
    raise_status(&st, None)
    out = []
    for i in range(count):
        op = p[0]
        p = get_varint(p + 1, end, &klen)
        key = p[:klen]
        p += klen
        value = None
        if op != OP_DELETE:
            p = get_varint(p, end, &vlen)
            value = p[:vlen]
            p += vlen
        out.append((OP_NAMES[op], key, value, first_seq + i))
    return out


def dump_log(path):
    """Yields a dict per record, and a last one with "problem" where the log stops before its end."""
    cdef LogImage image
    cdef LogRecord record
    cdef Status st
    cdef const char* problem
    cdef bytes encoded = os.fsencode(path)
    memset(&image, 0, sizeof(image))
    status_clear(&st)
    try:
        image_load(&image, encoded, &st)
        if st.code == ST_OK:
            image_open(&image, 0, &st)
        raise_status(&st, path)
        yield {
            "head": True,
            "number": image.number,
            "previous_last_seq": image.previous_last_seq,
            "known_synced": image.known_synced,
            "file_size": image.size,
            "problem": None,
        }
        while True:
            problem = record_problem(&image, &record)
            if problem != NULL:
                if problem[0] or not all_zero(image.data, image.offset, image.size):
                    yield {"offset": image.offset, "problem": problem.decode() or "a hole in the log"}
                return
            yield {
                "offset": record.offset,
                "size": LOG_RECORD_HEADER + padded(record.size),
                "first_seq": record.first_seq,
                "count": record.count,
                "synced": record.synced,
                "operations": decode_batch(record.payload[:record.size], record.count, record.first_seq),
            }
            image.offset += LOG_RECORD_HEADER + padded(record.size)
    finally:
        free(image.data)
