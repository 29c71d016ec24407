# Replays logs into memtables, a piece at a time: small operations take ten times as much memory as log.

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from lsmkv_ext.batch cimport OP_PUT, OP_PUT_POINTER, OpCursor, Operation, ops_allowed, ops_begin, ops_next
from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.limits cimport LARGE_VALUE
from lsmkv_ext.memtable.apply cimport mem_apply
from lsmkv_ext.memtable.memtable cimport (
    MemC, Memtable, MemValueLog, mem_insert, mem_reserve, mem_value_place, mem_weight,
)
from lsmkv_ext.memtable.slots cimport MemSlot, MemSlots, slots_find
from lsmkv_ext.port.atomics cimport lsm_load64
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport get_u64
from lsmkv_ext.port.status cimport ST_OK, Status, fail_corrupt, fail_memory, raise_status, status_clear
from lsmkv_ext.values.format cimport ValuePointer, pointer_decode, pointer_end
from lsmkv_ext.wal.format cimport LogRecord
from lsmkv_ext.wal.reader cimport (
    READ_WINDOW,
    LogFile,
    LogReader,
    log_read_head,
    log_read_record,
    log_release_pages,
    log_release_window,
    log_skip_record,
)


cdef int insert_large(LogFile* file, MemC* m, const Operation* op, uint64_t hash_seed) noexcept nogil:
    """Moves a large value piece by piece and frees the window of the log as it goes: the value is in memory only once."""
    cdef size_t done = 0, part
    cdef char* place
    if mem_reserve(m, op.klen, op.vlen, op.expiry) != 0:
        return -1
    place = mem_value_place(m, op.klen, op.expiry)
    while done < op.vlen:
        part = min(op.vlen - done, <size_t>READ_WINDOW)
        memcpy(place + done, op.value + done, part)
        done += part
        log_release_pages(file, op.value, op.value + done)
    return mem_insert(m, op.key, op.klen, NULL, op.vlen, op.expiry, op.seq, OP_PUT, xxh3(op.key, op.klen, hash_seed))


cdef bint has_value(const MemC* m, const Operation* op) noexcept nogil:
    """Whether the memtable holds the value log of a pointer, and it reaches to the end of the value."""
    cdef MemValueLog* held = m.value_logs
    cdef ValuePointer p
    pointer_decode(op.value, &p)
    while held != NULL and held.log.number != p.number:
        held = held.next
    return (held != NULL and held.log.identity == get_u64(op.value + POINTER_SIZE)
            and pointer_end(&p) <= lsm_load64(&held.log.end))


cdef int apply_next(LogFile* file, OpCursor* ops, const MemSlots* slots, uint64_t hash_seed, uint64_t* weight,
                    uint64_t* lost, Status* st) noexcept nogil:
    cdef Operation op
    cdef MemSlot* slot
    cdef const char* problem = ops_next(ops, &op)
    cdef int failed
    if problem != NULL:
        return fail_corrupt(st, problem, file.head.number, file.offset)
    slot = slots_find(slots, op.keyspace)
    if slot == NULL:
        return fail_corrupt(st, b"an operation names a keyspace that is not in the manifest", file.head.number, file.offset)
    if op.op == OP_PUT_POINTER and not has_value(slot.memtable, &op):
        if lost == NULL:
            return fail_corrupt(st, b"an operation points to a value that is missing", file.head.number, file.offset)
        lost[0] += 1
        return ST_OK
    weight[0] -= mem_weight(slot.memtable)
    if op.op == OP_PUT and op.vlen >= READ_WINDOW:
        failed = insert_large(file, slot.memtable, &op, hash_seed)
    else:
        failed = mem_apply(slot.memtable, &op, xxh3(op.key, op.klen, hash_seed))
    weight[0] += mem_weight(slot.memtable)
    return fail_memory(st, b"memtable") if failed else ST_OK


cdef uint64_t flush_cost(OpCursor ops) noexcept nogil:
    """Bytes that a flush takes for the block of the next value, if that is large: the block, raw and compressed."""
    cdef Operation op
    if ops.end - ops.p < READ_WINDOW or ops_next(&ops, &op) != NULL or op.op != OP_PUT or op.vlen > LARGE_VALUE:
        return 0
    return 2 * op.vlen


cdef inline uint64_t bytes_applied(const LogFile* file, const OpCursor* ops) noexcept nogil:
    return file.offset - <uint64_t>(ops.end - ops.p)


cdef int next_record(LogFile* file, OpCursor* ops, Status* st) noexcept nogil:
    cdef LogRecord record
    cdef const char* problem = log_read_record(file, &record, st)
    if problem == NULL:
        problem = ops_begin(ops, record.payload, record.size, record.count, record.first_seq, ops_allowed(file.head.version))
    if problem != NULL:
        if st.code == ST_OK:
            fail_corrupt(st, b"the log changed while it was read", file.head.number, file.offset)
        return st.code
    log_skip_record(file, &record)
    return ST_OK


cdef uint64_t slots_weight(const MemSlots* slots) noexcept nogil:
    cdef uint64_t total = 0
    cdef Py_ssize_t i
    for i in range(slots.count):
        total += mem_weight(slots.items[i].memtable)
    return total


cdef int fill(LogFile* file, OpCursor* ops, uint64_t stop, const MemSlots* slots, uint64_t hash_seed, uint64_t room,
              uint64_t* lost, Status* st) noexcept nogil:
    """Applies operations up to `stop`, or until the memtables take `room` more than the log bytes applied. (A record larger than
    the usual window does not count as applied: the window that holds it is in memory too.)"""
    cdef uint64_t began = bytes_applied(file, ops)
    cdef uint64_t empty = slots_weight(slots)
    cdef uint64_t weight = empty
    cdef uint64_t applied
    while True:
        while ops.left:
            applied = bytes_applied(file, ops) - began if file.capacity <= READ_WINDOW else 0
            if weight + (flush_cost(ops[0]) if weight > empty else 0) > room + applied:
                log_release_pages(file, file.window, ops.p)
                return ST_OK
            if apply_next(file, ops, slots, hash_seed, &weight, lost, st) != ST_OK:
                return st.code
        ops.p = ops.end = NULL
        log_release_window(file)    # before the memtable is flushed, which takes memory of its own
        if file.offset >= stop:
            return ST_OK
        if next_record(file, ops, st) != ST_OK:
            return st.code


cdef class LogReplay:
    """Applies the operations of a log that was checked, up to the offset `stop`, to as many memtables as it takes.

    One thread at a time.
    """
    cdef LogReader reader
    cdef OpCursor ops               # the rest of the current record, in the reader's window
    cdef uint64_t stop
    cdef bint skip_lost
    cdef readonly uint64_t lost     # operations left out because their values are missing

    def __cinit__(self, path, uint64_t number, uint64_t stop, bint skip_lost=False):
        cdef Status st
        self.reader = LogReader(path)
        self.stop = stop
        self.skip_lost = skip_lost
        status_clear(&st)
        log_read_head(&self.reader.file, number, &st)
        raise_status(&st, self.reader.path)

    @property
    def done(self):
        return self.ops.left == 0 and self.reader.file.offset >= self.stop

    @property
    def taken(self):
        """Bytes of the log that are in memtables."""
        return bytes_applied(&self.reader.file, &self.ops)

    def fill(self, dict memtables not None, uint64_t hash_seed, uint64_t room):
        """Apply operations to the memtables of their keyspaces until all are done, or the memtables take `room` more bytes than
        the log bytes that this call applied. They are empty, or were filled from earlier logs.

        This may cut a batch in two: the memtables must become visible together.
        """
        cdef LogFile* file = &self.reader.file
        cdef OpCursor* ops = &self.ops
        cdef uint64_t* lost = &self.lost if self.skip_lost else NULL
        cdef MemSlots slots
        cdef Status st
        cdef Py_ssize_t i
        slots.count = len(memtables)
        slots.items = <MemSlot*>calloc(slots.count + 1, sizeof(MemSlot))
        if slots.items == NULL:
            raise MemoryError("keyspaces")
        status_clear(&st)
        try:
            for i, keyspace in enumerate(sorted(memtables)):
                slots.items[i].keyspace = keyspace
                slots.items[i].memtable = (<Memtable?>memtables[keyspace]).c
            with nogil:
                fill(file, ops, self.stop, &slots, hash_seed, room, lost, &st)
        finally:
            free(slots.items)
        raise_status(&st, self.reader.path)
