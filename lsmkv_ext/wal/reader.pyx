import os

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext.batch cimport OpCursor, Operation, ops_allowed, ops_begin, ops_next, ops_problem
from lsmkv_ext.limits cimport MAX_SEQ
from lsmkv_ext.port.coding cimport all_zero, get_u32
from lsmkv_ext.port.file cimport ERR_NOT_REGULAR, OPEN_READ, file_close, file_next_data, file_open, file_pread, file_size
from lsmkv_ext.port.pages cimport MADV_DONTNEED, madvise, page_ceil, page_floor
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
from lsmkv_ext.wal.format cimport (
    LOG_BATCH,
    LOG_HEAD_SIZE,
    LOG_RECORD_HEADER,
    head_decode,
    header_decode,
    header_type,
    padded,
    record_problem,
)

from lsmkv_ext.wal.sync_watermark import read_watermark_beside

HEAD_SIZE = LOG_HEAD_SIZE       # a log whose known-synced offset is this has no synced record


# --- the file and its window -----------------------------------------------------------------------------------------

cdef int open_file(LogFile* file, const char* path, Status* st) noexcept nogil:
    cdef int err = file_open(path, OPEN_READ, &file.fd)
    if err:
        file.fd = -1
        if err == ERR_NOT_REGULAR:
            return fail_corrupt(st, b"not a regular file", 0, 0)
        return fail_io(st, b"log: open", err)
    err = file_size(file.fd, &file.size)
    return fail_io(st, b"log: size", err) if err else ST_OK


cdef void free_file(LogFile* file) noexcept nogil:
    # Our descriptors are above 2. A LogFile of zeros, whose reader failed to start, has none.
    if file.fd > 2:
        file_close(file.fd)
    file.fd = -1
    free(file.window)
    file.window = NULL


cdef void log_release_window(LogFile* file) noexcept nogil:
    if file.capacity > READ_WINDOW:
        free(file.window)
        file.window = NULL
        file.capacity = 0
        file.held = 0


cdef void log_release_pages(LogFile* file, const char* start, const char* stop) noexcept nogil:
    cdef uint64_t first = page_ceil(<uint64_t>start)
    cdef uint64_t end = page_floor(<uint64_t>stop)
    if file.capacity > READ_WINDOW and end > first:
        madvise(<void*>first, end - first, MADV_DONTNEED)


cdef const char* file_bytes(LogFile* file, uint64_t at, uint64_t n, Status* st) noexcept nogil:
    """The n bytes at `at`, which must be within the file; NULL with *st set. Bytes returned earlier become invalid."""
    cdef size_t got
    cdef uint64_t want
    cdef int err
    if at >= file.start and at + n <= file.start + file.held:
        return file.window + (at - file.start)
    want = min(max(n, <uint64_t>READ_WINDOW), file.size - at)
    # Back to the usual size after a large record: many small ones may follow.
    if want > file.capacity or file.capacity > max(want, <uint64_t>READ_WINDOW):
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
        fail_corrupt(st, b"the log became shorter while it was read", file.head.number, at + got)
        return NULL
    return file.window


# --- head and records ------------------------------------------------------------------------------------------------

cdef int log_read_head(LogFile* file, uint64_t number, Status* st) noexcept nogil:
    """The head was synced before the log got its name, so a crash cannot have damaged it."""
    cdef const char* head
    file.head.known_synced = LOG_HEAD_SIZE
    file.offset = LOG_HEAD_SIZE
    if file.size < LOG_HEAD_SIZE:
        return fail_corrupt(st, b"the log ends within its head page", number, file.size)
    head = file_bytes(file, 0, LOG_HEAD_SIZE, st)
    return st.code if head == NULL else head_decode(head, number, &file.head, st)


cdef const char* log_read_record(LogFile* file, LogRecord* record, Status* st) noexcept nogil:
    cdef uint64_t left = file.size - file.offset
    cdef uint64_t whole
    cdef const char* p = file_bytes(file, file.offset, min(left, <uint64_t>LOG_RECORD_HEADER), st)
    if p == NULL:
        return b"the log cannot be read"
    if left < LOG_RECORD_HEADER:
        return b"" if all_zero(p, left) else b"a record header is cut short"
    if not header_decode(p, file.head.number, file.offset, record):
        return b"" if all_zero(p, LOG_RECORD_HEADER) else b"a record header does not match its checksum"
    whole = record_size(record.size)
    if whole > left:
        return b"a record runs over the end of the log"
    if header_type(p) != LOG_BATCH:
        return b"a record is of unknown type"
    p = file_bytes(file, file.offset, whole, st)
    if p == NULL:
        return b"the log cannot be read"
    record.payload = p + LOG_RECORD_HEADER
    return record_problem(p, record, file.head.number)


cdef int log_blank_from(LogFile* file, uint64_t at, Status* st) noexcept nogil:
    cdef const char* p
    cdef uint64_t n
    while True:
        at = file_next_data(file.fd, at, file.size)
        if at >= file.size:
            return 1
        n = min(<uint64_t>READ_WINDOW, file.size - at)
        p = file_bytes(file, at, n, st)
        if p == NULL:
            return -1
        if not all_zero(p, n):
            return 0
        at += n


cdef class LogReader:
    """A log file, open for reading."""

    def __cinit__(self, path):
        cdef Status st
        cdef bytes encoded = os.fsencode(path)
        cdef const char* cpath = encoded
        self.path = os.fsdecode(path)
        status_clear(&st)
        with nogil:
            open_file(&self.file, cpath, &st)
        raise_status(&st, self.path)

    def __dealloc__(self):
        free_file(&self.file)


# --- checking a whole log --------------------------------------------------------------------------------------------

ctypedef struct LogCheck:
    uint64_t records
    uint64_t operations
    uint64_t first_seq
    uint64_t last_seq           # 0: no record yet
    const char* torn            # why the records end before the last byte of the log, or NULL


cdef void raise_known_synced(LogFile* file, const LogRecord* record) noexcept nogil:
    if record.synced > file.head.known_synced and record.synced <= record.offset:
        file.head.known_synced = record.synced


cdef int search_known_synced(LogFile* file, Status* st) noexcept nogil:
    """Searches the bytes after a bad record for good headers: the known-synced offset in each tells whether the bad record was
    synced. (A good record after it proves nothing by itself: pages reach the disk in any order.)"""
    cdef uint64_t at = padded(file.offset)
    cdef uint64_t i, n
    cdef const char* p
    cdef LogRecord record
    while True:
        at = file_next_data(file.fd, at, file.size) & ~<uint64_t>7
        if at + LOG_RECORD_HEADER > file.size:
            return ST_OK
        n = min(<uint64_t>READ_WINDOW, file.size - at)
        p = file_bytes(file, at, n, st)
        if p == NULL:
            return st.code
        i = 0
        while i + LOG_RECORD_HEADER <= n:
            # Rules most offsets out without a checksum: a record has a payload.
            if get_u32(p + i + 8) != 0 and header_decode(p + i, file.head.number, at + i, &record):
                raise_known_synced(file, &record)
            i += 8
        at += i


cdef const char* order_problem(const LogRecord* record, uint64_t last_seq) noexcept nogil:
    if last_seq and record.first_seq != last_seq + 1:
        return b"a record is out of sequence"
    if record.first_seq >= MAX_SEQ - record.count:
        return b"a record's sequence numbers are beyond their limit"
    return NULL


cdef const char* check_records(LogFile* file, bint salvage, LogCheck* check, Status* st) noexcept nogil:
    """Reads records up to the first problem and returns it; file.offset is then its offset."""
    cdef LogRecord record
    cdef const char* problem
    while True:
        problem = log_read_record(file, &record, st)
        if problem == NULL:
            problem = order_problem(&record, check.last_seq)
        if problem != NULL:
            return problem
        raise_known_synced(file, &record)
        problem = ops_problem(record.payload, record.size, record.count, ops_allowed(file.head.version))
        if problem != NULL:
            # The checksum matches, so this is not the work of a crash.
            if not salvage:
                fail_corrupt(st, problem, file.head.number, record.offset)
            return problem
        if check.records == 0:
            check.first_seq = record.first_seq
        check.records += 1
        check.operations += record.count
        check.last_seq = record.first_seq + record.count - 1
        log_skip_record(file, &record)


cdef int check_file(LogFile* file, bint salvage, LogCheck* check, Status* st) noexcept nogil:
    """Damage below the known-synced offset is corruption, damage above it a torn tail."""
    cdef const char* problem = check_records(file, salvage, check, st)
    cdef int blank = 0
    if st.code == ST_OK and problem[0] == 0:
        blank = log_blank_from(file, file.offset, st)
    if st.code != ST_OK:
        return st.code
    if blank:
        # Synced records may have been overwritten by zeros.
        if file.offset < file.head.known_synced and not salvage:
            return fail_corrupt(st, b"synced log records are missing", file.head.number, file.offset)
        return ST_OK
    check.torn = problem
    if problem[0] == 0:
        check.torn = b"a hole in the log"
    if search_known_synced(file, st) != ST_OK:
        return st.code
    if file.offset < file.head.known_synced and not salvage:
        return fail_corrupt(st, check.torn, file.head.number, file.offset)
    return ST_OK


def check_log(path, uint64_t number, *, bint salvage=False):
    """Read a log to its end and return what is in it.

    Damage below the known-synced offset raises CorruptionError, unless `salvage`. Damage above it is the torn tail:
    "torn_reason", "torn_offset" and "torn_bytes" describe it. "bytes" is where the good records end, "damaged_slot" the offset
    of a damaged slot in the head.
    """
    cdef LogReader reader
    cdef LogFile* file
    cdef LogCheck check
    cdef Status st
    # Read before the log, which may be growing: the bytes below the watermark are then in what is read.
    watermark = read_watermark_beside(path)
    cdef uint64_t watermark_number = 0, watermark_synced = 0
    if watermark is not None:
        watermark_number, watermark_synced = watermark
    reader = LogReader(path)
    file = &reader.file
    memset(&check, 0, sizeof(check))
    status_clear(&st)
    with nogil:
        if log_read_head(file, number, &st) == ST_OK:
            if watermark_number == file.head.number and watermark_synced > file.head.known_synced:
                file.head.known_synced = watermark_synced
            check_file(file, salvage, &check, &st)
    if salvage and st.code == ST_CORRUPT and check.records == 0:
        # Without its head nothing of a log can be used.
        check.torn = st.what
        file.offset = 0
        status_clear(&st)
    raise_status(&st, reader.path)
    torn = None if check.torn == NULL else check.torn.decode()
    return {
        "records": check.records,
        "entries": check.operations,
        "first_seq": check.first_seq,
        "last_seq": check.last_seq,
        "bytes": file.offset,
        "file_size": file.size,
        "torn_reason": torn,
        "torn_offset": None if torn is None else file.offset,
        "torn_bytes": 0 if torn is None else file.size - min(file.size, file.offset),
        "version": file.head.version,
        "previous_last_seq": file.head.previous_last_seq,
        "known_synced": file.head.known_synced,
        "damaged_slot": file.head.damaged_slot or None,
    }


cdef const char* add_keyspaces(const LogFile* file, const LogRecord* record, set found, Py_ssize_t limit):
    """Adds the ids of the record's operations. Returns NULL or what is wrong."""
    cdef OpCursor ops
    cdef Operation op
    cdef uint64_t last = <uint64_t>-1
    cdef const char* problem = ops_begin(&ops, record.payload, record.size, record.count, record.first_seq,
                                         ops_allowed(file.head.version))
    while problem == NULL and ops.left:
        problem = ops_next(&ops, &op)
        if problem == NULL and op.keyspace != last:
            last = op.keyspace
            found.add(op.keyspace)
            if len(found) > limit:
                return b"the log has operations of too many unknown keyspaces"
    return problem


def log_keyspaces(path, uint64_t number, uint64_t stop, Py_ssize_t limit):
    """Return the ids of the keyspaces that a checked log has operations of, up to the offset `stop`. More than `limit` are
    corruption.
    """
    cdef LogReader reader = LogReader(path)
    cdef LogFile* file = &reader.file
    cdef LogRecord record
    cdef const char* problem
    cdef Status st
    cdef set found = set()
    status_clear(&st)
    log_read_head(file, number, &st)
    while st.code == ST_OK and file.offset < stop:
        problem = log_read_record(file, &record, &st)
        if problem == NULL:
            problem = add_keyspaces(file, &record, found, limit)
        if problem == NULL:
            log_skip_record(file, &record)
        elif st.code == ST_OK:
            fail_corrupt(&st, problem, number, file.offset)
    raise_status(&st, reader.path)
    return found
