"""The values that the records of a log point to. The known-synced offset of a log covers them: below it they must be there; at or
above it a record counts only if its values pass their checksums."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from lsmkv_ext.batch cimport OP_PUT_POINTER, OpCursor, Operation, ops_allowed, ops_begin, ops_next
from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.port.atomics cimport lsm_load64
from lsmkv_ext.port.coding cimport get_u64
from lsmkv_ext.port.status cimport ST_CORRUPT, ST_OK, Status, fail_corrupt, raise_status, status_clear
from lsmkv_ext.values.format cimport ValuePointer, pointer_decode, pointer_end
from lsmkv_ext.values.reader cimport ValueLog, ValueLogC, value_verify
from lsmkv_ext.values.rewriter cimport ValueRewriter, rewrite_value
from lsmkv_ext.wal.format cimport LogRecord
from lsmkv_ext.wal.reader cimport LogFile, LogReader, log_read_head, log_read_record, log_skip_record

ctypedef struct LoggedValues:   # of one value log
    ValueLogC* log              # borrowed
    uint64_t known              # values up to here are on disk, or were visited
    int fd                      # to write values again; -1: they are only checked

ctypedef struct PointerVisit:
    LoggedValues* logs          # owned; by number
    Py_ssize_t n
    uint64_t records
    uint64_t operations
    uint64_t last_seq
    const char* problem         # why the good records end before `stop`, or NULL


cdef LoggedValues* find_log(PointerVisit* v, uint64_t number) noexcept nogil:
    cdef Py_ssize_t low = 0, high = v.n, middle
    while low < high:
        middle = (low + high) // 2
        if v.logs[middle].log.number < number:
            low = middle + 1
        else:
            high = middle
    return &v.logs[low] if low < v.n and v.logs[low].log.number == number else NULL


cdef const char* visit_value(LoggedValues* log, const ValuePointer* p, Status* st) noexcept nogil:
    """Checks a value that may not be on disk, and writes it again if asked. Returns NULL or what is wrong with it."""
    if log.fd >= 0:
        rewrite_value(log.fd, log.log, p, st)
    else:
        value_verify(log.log, p, st)
    if st.code != ST_CORRUPT:
        return NULL
    st.code = ST_OK
    return st.what


cdef const char* visit_pointer(PointerVisit* v, const Operation* op, bint synced, Status* st) noexcept nogil:
    cdef const char* problem = NULL
    cdef ValuePointer p
    cdef LoggedValues* log
    pointer_decode(op.value, &p)        # checked with the operation
    log = find_log(v, p.number)
    if log == NULL:
        return b"a value log is missing"
    if log.log.identity != get_u64(op.value + POINTER_SIZE):
        return b"a value log is not the one that was written"
    if pointer_end(&p) > lsm_load64(&log.log.end):
        return b"a value log ends before a value"
    # Values follow each other in the order of the records: none is visited twice.
    if pointer_end(&p) > log.known:
        if not synced:
            problem = visit_value(log, &p, st)
        log.known = pointer_end(&p)
    return problem


cdef const char* visit_record(PointerVisit* v, const LogFile* file, const LogRecord* record, bint synced,
                              Status* st) noexcept nogil:
    cdef OpCursor ops
    cdef Operation op
    cdef const char* problem = ops_begin(&ops, record.payload, record.size, record.count, record.first_seq,
                                         ops_allowed(file.head.version))
    while problem == NULL and ops.left and st.code == ST_OK:
        problem = ops_next(&ops, &op)
        if problem == NULL and op.op == OP_PUT_POINTER:
            problem = visit_pointer(v, &op, synced, st)
    return problem


cdef int visit(PointerVisit* v, LogFile* file, uint64_t stop, uint64_t known_synced, bint salvage, Status* st) noexcept nogil:
    """Visits the values of the records up to `stop`, or up to the first record that does not count."""
    cdef LogRecord record
    while file.offset < stop and st.code == ST_OK:
        v.problem = log_read_record(file, &record, st)
        if v.problem == NULL:
            v.problem = visit_record(v, file, &record, record.offset < known_synced, st)
        if st.code != ST_OK:
            break
        if v.problem != NULL:
            if file.offset < known_synced and not salvage:
                fail_corrupt(st, v.problem, file.head.number, file.offset)
            break
        v.records += 1
        v.operations += record.count
        v.last_seq = record.first_seq + record.count - 1
        log_skip_record(file, &record)
    return st.code


cdef int begin(PointerVisit* v, list value_logs, dict known) except -1:
    cdef ValueLog log
    cdef Py_ssize_t i
    value_logs.sort(key=lambda log: log.number)
    v.logs = <LoggedValues*>calloc(len(value_logs) + 1, sizeof(LoggedValues))
    if v.logs == NULL:
        raise MemoryError("value logs")
    v.n = len(value_logs)
    for i in range(len(value_logs)):
        log = value_logs[i]
        v.logs[i].log = log.c
        v.logs[i].known = known.get(log.number, 0)
        v.logs[i].fd = -1
    return 0


def value_logs_of(path, uint64_t number, uint64_t stop):
    """Return {number: identity} of the value logs that a checked log points into, up to the offset `stop`."""
    cdef LogReader reader = LogReader(path)
    cdef LogFile* file = &reader.file
    cdef LogRecord record
    cdef OpCursor ops
    cdef Operation op
    cdef uint64_t last = 0
    cdef Status st
    cdef dict found = {}
    status_clear(&st)
    log_read_head(file, number, &st)
    while st.code == ST_OK and file.offset < stop and log_read_record(file, &record, &st) == NULL:
        ops_begin(&ops, record.payload, record.size, record.count, record.first_seq, ops_allowed(file.head.version))
        while ops.left and ops_next(&ops, &op) == NULL:
            if op.op == OP_PUT_POINTER and get_u64(op.value) != last:
                last = get_u64(op.value)
                found.setdefault(last, get_u64(op.value + POINTER_SIZE))
        log_skip_record(file, &record)
    raise_status(&st, reader.path)
    return found


def check_values(path, uint64_t number, uint64_t stop, uint64_t known_synced, list value_logs not None, dict known not None,
                 *, bint salvage=False):
    """Check the values that a checked log points to, up to the offset `stop`. `value_logs` are those that exist, `known` has the
    offsets up to which their values are known to be on disk.

    Returns the same as `check_log` about the records that count. A missing value below the known-synced offset raises
    CorruptionError, unless `salvage`.
    """
    cdef LogReader reader = LogReader(path)
    cdef LogFile* file = &reader.file
    cdef PointerVisit v
    cdef Status st
    v.records = v.operations = v.last_seq = 0
    v.problem = NULL
    begin(&v, value_logs, known)
    status_clear(&st)
    with nogil:
        if log_read_head(file, number, &st) == ST_OK:
            visit(&v, file, stop, known_synced, salvage, &st)
    free(v.logs)
    raise_status(&st, reader.path)
    found = {"records": v.records, "entries": v.operations, "last_seq": v.last_seq, "bytes": file.offset}
    if v.problem != NULL:
        found.update(torn_reason=v.problem.decode(), torn_offset=file.offset, torn_bytes=file.size - file.offset)
    return found


def write_values_again(path, uint64_t number, uint64_t stop, uint64_t known_synced, list value_logs not None,
                       dict known not None):
    """Write the values again in place that the records at or above `known_synced` point to, and sync their value logs: an fsync
    of an earlier process may have failed, and the kernel then takes the pages for clean."""
    cdef LogReader reader = LogReader(path)
    cdef LogFile* file = &reader.file
    cdef ValueRewriter rewriter
    cdef PointerVisit v
    cdef Status st
    cdef Py_ssize_t i
    v.records = v.operations = v.last_seq = 0
    v.problem = NULL
    rewriters = [ValueRewriter(log) for log in sorted(value_logs, key=lambda log: log.number)]
    begin(&v, value_logs, known)
    status_clear(&st)
    for i in range(v.n):
        rewriter = rewriters[i]
        v.logs[i].fd = rewriter.fd
    with nogil:
        if log_read_head(file, number, &st) == ST_OK:
            visit(&v, file, stop, known_synced, False, &st)
    free(v.logs)
    if st.code == ST_OK and v.problem != NULL:
        fail_corrupt(&st, v.problem, number, file.offset)
    raise_status(&st, reader.path)
    for rewriter in rewriters:
        rewriter.sync()
