import os
import time
from array import array

from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from lsmkv_ext.block.memory cimport Entry
from lsmkv_ext.entry cimport (
    ENTRY_DELETE, ENTRY_EXPIRY, ENTRY_POINTER, EXPIRY_SIZE, POINTER_SIZE, expiry_of, expiry_size,
)
from lsmkv_ext.memtable.memtable cimport Memtable, mem_order
from lsmkv_ext.memtable.order cimport MAX_RUNS, mem_order_release
from lsmkv_ext.port.alloc cimport lsm_free
from lsmkv_ext.port.atomics cimport lsm_fetch_add64, lsm_load32, lsm_load64, lsm_store32, lsm_store64
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.file cimport file_sync_dir
from lsmkv_ext.port.growable cimport array_reserve, buf_append, buf_free
from lsmkv_ext.port.status cimport ST_CANCELLED, ST_CORRUPT, ST_OK, fail_io, fail_memory, raise_status, status_clear
from lsmkv_ext.read.merge cimport (
    merge_add_level,
    merge_add_order,
    merge_add_table,
    merge_close,
    merge_entry,
    merge_first,
    merge_init,
    merge_next,
    merge_seek,
    merge_skip_to,
)
from lsmkv_ext.read.tombstones cimport sweep_add_memtable, sweep_add_table, sweep_begin, sweep_free, sweep_next
from lsmkv_ext.table.builder cimport (
    builder_abandon,
    builder_add,
    builder_add_range_tombstone,
    builder_drop_filter,
    builder_finish,
    builder_open,
    builder_size,
)
from lsmkv_ext.table.format cimport RangeTombstone
from lsmkv_ext.table.meta cimport meta_free, meta_object
from lsmkv_ext.table.table cimport Table
from lsmkv_ext.values.format cimport ValuePointer, pointer_decode, pointer_encode
from lsmkv_ext.values.reader cimport ValueLog
from lsmkv_ext.values.writer cimport value_append, value_copy, value_seal, value_writer_close, value_writer_open

from lsmkv_ext.errors import Error

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef enum:
    PATH_SIZE = 4200
    CHECK_EVERY = 512           # entries between checks for a cancel
    SKIP_EVERY = 8              # covered entries between attempts to skip
    MAX_TOMBSTONES = 2 << 20    # bytes of range tombstones after which an output is cut: an open table keeps them in memory


cdef void table_path(const JobC* j, uint64_t number, char* out) noexcept nogil:
    snprintf(out, PATH_SIZE, b"%s/%06llu.sst", j.directory, <unsigned long long>number)


cdef void value_log_path(const JobC* j, char* out) noexcept nogil:
    snprintf(out, PATH_SIZE, b"%s/%06llu.vlog", j.directory, <unsigned long long>j.own.number)


# --- outputs ---------------------------------------------------------------------------------------------------------

cdef int keep_copy(char** owned, size_t* n, const char* data, size_t size, Status* st) noexcept nogil:
    """Not a GrowBuf: an empty key is not NULL."""
    cdef char* grown = <char*>realloc(owned[0], size if size else 1)
    if grown == NULL:
        return fail_memory(st, b"job")
    memcpy(grown, data, size)
    owned[0] = grown
    n[0] = size
    return ST_OK


cdef int open_output(JobC* j, Status* st) noexcept nogil:
    cdef char path[PATH_SIZE]
    j.number = lsm_fetch_add64(j.next_number, 1)
    j.options.number = j.number
    table_path(j, j.number, path)
    memset(&j.builder, 0, sizeof(BuilderC))
    if builder_open(&j.builder, path, &j.options, st) != ST_OK:
        return st.code
    j.open = True
    j.grandparent_overlap = 0
    return ST_OK


cdef bint older_tables_overlap(const JobC* j, const char* start, size_t n, const char* stop, size_t m) noexcept nogil:
    """Whether an older table may hold a key in [start, stop]."""
    cdef size_t lo = 0, hi = j.n_below, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if lsm_compare(j.below[mid].stop, j.below[mid].stop_len, start, n) < 0:
            lo = mid + 1
        else:
            hi = mid
    return lo < j.n_below and lsm_compare(j.below[lo].start, j.below[lo].start_len, stop, m) <= 0


cdef int write_fragment(JobC* j, const RangeTombstone* d, const char* stop, size_t stop_len, Status* st) noexcept nogil:
    """Writes the part of a fragment between the start of the open output and `stop` (NULL: unbounded). Drops it if no older
    table overlaps it."""
    cdef RangeTombstone r = d[0]
    if j.cut != NULL and lsm_compare(r.start, r.start_len, j.cut, j.cut_len) < 0:
        r.start = j.cut
        r.start_len = j.cut_len
    if stop != NULL and lsm_compare(r.stop, r.stop_len, stop, stop_len) > 0:
        r.stop = stop
        r.stop_len = stop_len
    if lsm_compare(r.start, r.start_len, r.stop, r.stop_len) >= 0:
        return ST_OK
    if not (j.keep_deletes or older_tables_overlap(j, r.start, r.start_len, r.stop, r.stop_len)):
        return ST_OK
    if not j.open and open_output(j, st) != ST_OK:
        return st.code
    return builder_add_range_tombstone(&j.builder, &r, st)


cdef int write_passed_fragments(JobC* j, const char* key, size_t klen, Status* st) noexcept nogil:
    """Writes the fragments that end at `key` or before it (NULL: all), and moves past them. All entries so far are below
    these stops, so an output may be cut there."""
    cdef RangeTombstone d
    while j.sweep.valid:
        d = j.sweep.span
        if key != NULL and lsm_compare(d.stop, d.stop_len, key, klen) > 0:
            return ST_OK
        if write_fragment(j, &d, NULL, 0, st) != ST_OK:
            return st.code
        if sweep_next(&j.sweep) != 0:
            return fail_memory(st, b"range tombstones")
        if (j.open and not j.single_output and j.builder.tombstones.len >= MAX_TOMBSTONES
                and finish_output(j, d.stop, d.stop_len, st) != ST_OK):
            return st.code
    return ST_OK


cdef int write_fragments(JobC* j, const char* stop, size_t stop_len, Status* st) noexcept nogil:
    """Writes the fragments from the start of the open output up to `stop` (NULL: to the end)."""
    if write_passed_fragments(j, stop, stop_len, st) != ST_OK:
        return st.code
    if j.sweep.valid and lsm_compare(j.sweep.span.start, j.sweep.span.start_len, stop, stop_len) < 0:
        return write_fragment(j, &j.sweep.span, stop, stop_len, st)    # the rest goes to the next output
    return ST_OK


cdef int finish_output(JobC* j, const char* next_key, size_t next_len, Status* st) noexcept nogil:
    """Finishes the open output before `next_key` (NULL: the last output)."""
    if write_fragments(j, next_key, next_len, st) != ST_OK:
        return st.code
    if next_key != NULL and keep_copy(&j.cut, &j.cut_len, next_key, next_len, st) != ST_OK:
        return st.code
    if not j.open:
        return ST_OK
    if (j.drop_filter_if_bottom and not j.keep_deletes and j.first_key != NULL
            and not older_tables_overlap(j, j.first_key, j.first_len, j.builder.last_key.data, j.builder.last_key.len)):
        builder_drop_filter(&j.builder)
    if array_reserve(<void**>&j.outputs, &j.cap_outputs, j.n_outputs + 1, sizeof(TableMetaC)) != 0:
        return fail_memory(st, b"job")
    if builder_finish(&j.builder, &j.outputs[j.n_outputs], st) != ST_OK:
        return st.code
    j.open = False
    free(j.first_key)
    j.first_key = NULL
    j.filter_build_ns += j.builder.filter_build_ns
    j.filter_verify_ns += j.builder.filter_verify_ns
    lsm_store64(&j.bytes_written, j.bytes_written + j.outputs[j.n_outputs].size)
    j.n_outputs += 1
    return ST_OK


cdef bint should_cut(JobC* j, const char* key, size_t klen) noexcept nogil:
    """Whether to cut the open output before `key`: it is large enough, or overlaps too much of the grandparent level."""
    cdef Interval* g
    if j.single_output:
        return False
    while j.grandparent_at < j.n_grandparents:
        g = &j.grandparents[j.grandparent_at]
        if lsm_compare(g.stop, g.stop_len, key, klen) >= 0:
            break
        j.grandparent_overlap += g.weight
        j.grandparent_at += 1
    if builder_size(&j.builder) >= j.target_size:
        return True
    return j.grandparent_overlap > j.max_grandparent_overlap and builder_size(&j.builder) >= j.target_size // 8


# --- the loop --------------------------------------------------------------------------------------------------------

cdef bint older_table_may_hold(JobC* j, const char* key, size_t klen) noexcept nogil:
    """Whether an older table may hold the key. Keys come in order, so `below_at` only moves forward."""
    if j.keep_deletes:
        return True
    while j.below_at < j.n_below and lsm_compare(j.below[j.below_at].stop, j.below[j.below_at].stop_len, key, klen) < 0:
        j.below_at += 1
    return (j.below_at < j.n_below
            and lsm_compare(j.below[j.below_at].start, j.below[j.below_at].start_len, key, klen) <= 0)


cdef int open_inputs(JobC* j, Status* st) noexcept nogil:
    cdef int capacity = 0, i, k
    cdef JobInput* input_
    for i in range(j.n_inputs):
        capacity += MAX_RUNS if j.inputs[i].memtable != NULL else 1
    j.rc.compaction = True
    j.orders = <MemOrder**>calloc(j.n_inputs if j.n_inputs else 1, sizeof(MemOrder*))
    if j.orders == NULL or merge_init(&j.merge, capacity, &j.rc, st) != ST_OK:
        return fail_memory(st, b"job")
    j.merge.by_seq = j.newest_by_seq
    for i in range(j.n_inputs):
        input_ = &j.inputs[i]
        if input_.memtable != NULL:
            j.orders[j.n_orders] = mem_order(input_.memtable, input_.chunk, input_.offset)
            if j.orders[j.n_orders] == NULL:
                return fail_memory(st, b"memtable order")
            merge_add_order(&j.merge, j.orders[j.n_orders], <uint64_t>-1)
            j.n_orders += 1
            if sweep_add_memtable(&j.sweep, input_.memtable, <uint64_t>-1) != 0:
                return fail_memory(st, b"range tombstones")
            continue
        if input_.n_tables == 1:
            merge_add_table(&j.merge, input_.tables[0])
        else:
            merge_add_level(&j.merge, input_.tables, input_.n_tables)
        for k in range(input_.n_tables):
            if sweep_add_table(&j.sweep, input_.tables[k]) != 0:
                return fail_memory(st, b"range tombstones")
    if sweep_begin(&j.sweep) != 0:
        return fail_memory(st, b"range tombstones")
    return ST_OK


cdef int open_values(JobC* j, Status* st) noexcept nogil:
    cdef char path[PATH_SIZE]
    value_log_path(j, path)
    return value_writer_open(&j.values, path, j.own.number, j.own.identity, st)


cdef ValueLogC* collected_log(const JobC* j, uint64_t number) noexcept nogil:
    """The value log of that number if its values are copied, or NULL."""
    cdef Py_ssize_t i
    for i in range(j.n_collected):
        if j.collected[i] == number:
            break
    else:
        return NULL
    for i in range(j.n_value_logs):
        if j.value_logs[i].number == number:
            return j.value_logs[i]
    return NULL


cdef int note_damaged(JobC* j, uint64_t number, Status* st) noexcept nogil:
    cdef const uint64_t* noted = <const uint64_t*>j.damaged_values.data
    cdef size_t n = j.damaged_values.len // 8
    if n and noted[n - 1] == number:
        return ST_OK
    return ST_OK if buf_append(&j.damaged_values, &number, 8) == 0 else fail_memory(st, b"job")


cdef int copy_value(JobC* j, Entry* e, char* place, Status* st) noexcept nogil:
    """Copies the value of an entry out of a value log that is collected. The entry gets the new pointer, in `place`."""
    cdef size_t hidden = expiry_size(e.kind)
    cdef ValuePointer p, copied
    cdef ValueLogC* log
    if pointer_decode(e.value + hidden, &p) != NULL:
        return ST_OK                # the builder refuses it
    log = collected_log(j, p.number)
    if log == NULL:
        return ST_OK
    if j.values.identity == 0 and open_values(j, st) != ST_OK:
        return st.code
    if value_copy(&j.values, log, &p, &copied, st) != ST_OK:
        if st.code != ST_CORRUPT:
            return st.code
        # The entry keeps its pointer, and so its value log stays.
        status_clear(st)
        return note_damaged(j, p.number, st)
    memcpy(place, e.value, hidden)
    pointer_encode(&copied, place + hidden)
    e.value = place
    j.values_copied += 1
    return ST_OK


cdef int separate_value(JobC* j, Entry* e, char* place, Status* st) noexcept nogil:
    """Moves the value of an entry to the new value log. The entry gets its pointer, in `place`."""
    cdef size_t hidden = expiry_size(e.kind)
    cdef ValuePointer p
    if j.values.identity == 0 and open_values(j, st) != ST_OK:
        return st.code
    if value_append(&j.values, e.value + hidden, e.vlen - hidden, j.value_compression, &p, st) != ST_OK:
        return st.code
    memcpy(place, e.value, hidden)
    pointer_encode(&p, place + hidden)
    e.value = place
    e.vlen = hidden + POINTER_SIZE
    e.kind |= ENTRY_POINTER
    j.values_copied += 1
    return ST_OK


cdef int add_entry(JobC* j, const Entry* entry, Status* st) noexcept nogil:
    cdef char place[EXPIRY_SIZE + POINTER_SIZE]
    cdef Entry copied
    cdef const Entry* e = entry
    if j.n_collected and e.kind & ENTRY_POINTER:
        copied = e[0]
        e = &copied
        if copy_value(j, &copied, place, st) != ST_OK:
            return st.code
    elif e.vlen >= j.large_value and not e.kind & ENTRY_POINTER and e.vlen - expiry_size(e.kind) >= j.large_value:
        copied = e[0]
        e = &copied
        if separate_value(j, &copied, place, st) != ST_OK:
            return st.code
    if j.open and should_cut(j, e.key, e.klen) and finish_output(j, e.key, e.klen, st) != ST_OK:
        return st.code
    if not j.open and open_output(j, st) != ST_OK:
        return st.code
    if j.first_key == NULL and keep_copy(&j.first_key, &j.first_len, e.key, e.klen, st) != ST_OK:
        return st.code
    j.entries_out += 1
    return builder_add(&j.builder, e.key, e.klen, e.value, e.vlen, e.seq, e.kind,
                       xxh3(e.key, e.klen, j.options.seed), st)


cdef int seek_start(JobC* j, Status* st) noexcept nogil:
    cdef Interval* g
    if j.start == NULL:
        return merge_first(&j.merge)
    while j.grandparent_at < j.n_grandparents:
        g = &j.grandparents[j.grandparent_at]
        if lsm_compare(g.stop, g.stop_len, j.start, j.start_len) >= 0:
            break
        j.grandparent_at += 1
    if keep_copy(&j.cut, &j.cut_len, j.start, j.start_len, st) != ST_OK:
        return st.code
    return merge_seek(&j.merge, j.start, j.start_len)


cdef int pass_covered(JobC* j, Status* st) noexcept nogil:
    """Moves past an entry that the current fragment covers, and now and then past all that it covers."""
    j.dropped_covered += 1
    if merge_next(&j.merge) != ST_OK or j.dropped_covered % SKIP_EVERY != 0:
        return st.code
    return merge_skip_to(&j.merge, j.sweep.span.stop, j.sweep.span.stop_len, j.sweep.span.seq)


cdef inline bint has_expired(const JobC* j, const Entry* e) noexcept nogil:
    return e.kind & ENTRY_EXPIRY and expiry_of(e.value) <= j.now


cdef Entry* as_tombstone(JobC* j, const Entry* e, Entry* out) noexcept nogil:
    """An expired entry hides older ones as a tombstone does, so it becomes one."""
    j.expired += 1
    j.expired_bytes += e.klen + e.vlen
    out[0] = e[0]
    out.kind = ENTRY_DELETE
    out.vlen = 0
    return out


cdef int merge_all(JobC* j, Status* st) noexcept nogil:
    cdef Entry* e
    cdef Entry tombstone
    if seek_start(j, st) != ST_OK:
        return st.code
    while True:
        e = merge_entry(&j.merge)
        if e == NULL or (j.stop != NULL and lsm_compare(e.key, e.klen, j.stop, j.stop_len) >= 0):
            break
        if j.entries_in % CHECK_EVERY == 0 and lsm_load32(&j.cancelled):
            st.code = ST_CANCELLED
            st.what = b"cancelled"
            return ST_CANCELLED
        lsm_store64(&j.entries_in, j.entries_in + 1)
        if j.sweep.valid and write_passed_fragments(j, e.key, e.klen, st) != ST_OK:
            return st.code
        # Fragments are disjoint: only the first that ends after the key can cover it.
        if (j.sweep.valid and j.sweep.span.seq > e.seq
                and lsm_compare(j.sweep.span.start, j.sweep.span.start_len, e.key, e.klen) <= 0):
            if pass_covered(j, st) != ST_OK:
                return st.code
            continue
        if e.kind and has_expired(j, e):
            e = as_tombstone(j, e, &tombstone)
        if e.kind == ENTRY_DELETE and not older_table_may_hold(j, e.key, e.klen):
            j.dropped_deletes += 1
        elif add_entry(j, e, st) != ST_OK:
            return st.code
        if merge_next(&j.merge) != ST_OK:
            return st.code
    return finish_output(j, j.stop, j.stop_len, st)


cdef int sync_outputs(JobC* j, Status* st) noexcept nogil:
    """The tables are synced; so are the new value log and the directory afterwards."""
    cdef int err = 0
    if j.values.identity:
        err = value_seal(&j.values)
        lsm_store64(&j.bytes_written, j.bytes_written + j.values.offset)
    if err == 0:
        err = file_sync_dir(j.directory)
    return fail_io(st, b"fsync", err) if err else ST_OK


cdef int job_run(JobC* j, Status* st) noexcept nogil:
    cdef char path[PATH_SIZE]
    cdef int i
    if j.own.identity:
        j.own.number = lsm_fetch_add64(j.next_number, 1)
    if open_inputs(j, st) == ST_OK and merge_all(j, st) == ST_OK and j.n_outputs:
        sync_outputs(j, st)
    if st.code != ST_OK and j.values.identity:
        value_log_path(j, path)
        unlink(path)
    value_writer_close(&j.values)
    if st.code != ST_OK:
        if j.open:
            builder_abandon(&j.builder)
            j.open = False
        for i in range(j.n_outputs):
            table_path(j, j.outputs[i].number, path)
            unlink(path)
            meta_free(&j.outputs[i])
        j.n_outputs = 0
    merge_close(&j.merge)
    for i in range(j.n_orders):
        mem_order_release(j.orders[i])
    j.n_orders = 0
    sweep_free(&j.sweep)
    return st.code


# --- Python ----------------------------------------------------------------------------------------------------------

cdef class FileNumbers:
    """The next free file number; jobs take numbers from it without the GIL."""

    def __cinit__(self, uint64_t first=1):
        self.value = first

    def next(self):
        return lsm_fetch_add64(&self.value, 1)

    @property
    def peek(self):
        return lsm_load64(&self.value)

    def bump(self, uint64_t used):
        """Marks `used` and all smaller numbers as taken."""
        if lsm_load64(&self.value) <= used:
            lsm_store64(&self.value, used + 1)


cdef list merge_intervals(ranges):
    """Merges [(first, last, ...)] into disjoint, sorted ranges."""
    out = []
    start = stop = None
    for item in sorted(ranges):
        if start is not None and item[0] <= stop:
            stop = max(stop, item[1])
            continue
        if start is not None:
            out.append((start, stop))
        start, stop = item[0], item[1]
    if start is not None:
        out.append((start, stop))
    return out


cdef Interval* make_intervals(list ranges) except NULL:
    cdef Interval* out = <Interval*>calloc(len(ranges) + 1, sizeof(Interval))
    cdef bytes first, last
    cdef Py_ssize_t i
    if out == NULL:
        raise MemoryError("job")
    for i in range(len(ranges)):
        first = ranges[i][0]
        last = ranges[i][1]
        out[i].start = first
        out[i].start_len = len(first)
        out[i].stop = last
        out[i].stop_len = len(last)
        out[i].weight = ranges[i][2] if len(ranges[i]) > 2 else 0
    return out


cdef class Job:
    """One flush or compaction. `inputs`, newest first: Memtable, Table, or a list of disjoint Tables in key order. With `start`
    and `stop` it takes only the keys in [start, stop), but still counts whole inputs as read. With `large_values`, a threshold
    and a compression, values of that size go to a new value log."""

    def __cinit__(self, inputs, *, directory, FileNumbers numbers not None, uint32_t output_level=0,
                  uint64_t target_file_size=64 << 20, int compression=1, uint32_t block_size=4096, uint32_t millibits=10000,
                  uint32_t milliwidth=0, bint drop_filter_if_bottom=False, uint64_t seed=0, bint verify_filters=True,
                  prefix=(0, 0),
                  below=None, grandparents=(), uint64_t max_grandparent_overlap=<uint64_t>-1, bint single_output=False,
                  uint32_t restart_interval=0, bint newest_by_seq=False, bytes start=None, bytes stop=None,
                  keyspace=(0, b""), uint64_t now=0, collect=(), large_values=None):
        cdef JobC* j = &self.j
        cdef bytes keyspace_name
        cdef int i
        self.directory = os.fsencode(directory)
        if len(self.directory) > PATH_SIZE - 64:
            raise ValueError("the database's path is too long")
        j.directory = self.directory
        self.numbers = numbers
        j.next_number = &numbers.value
        j.options.seed = seed
        j.options.block_size = block_size
        j.options.restart_interval = restart_interval
        j.options.compression = compression
        j.options.millibits = millibits
        j.options.milliwidth = milliwidth
        j.options.level = output_level
        j.options.verify_filter = verify_filters
        j.options.prefix_kind, j.options.prefix_arg = prefix
        j.options.created_unix = int(time.time())
        j.options.keyspace, keyspace_name = keyspace
        j.options.keyspace_name = keyspace_name
        j.options.keyspace_name_len = <size_t>len(keyspace_name)
        j.target_size = target_file_size
        j.single_output = single_output
        j.newest_by_seq = newest_by_seq
        j.now = now
        j.drop_filter_if_bottom = drop_filter_if_bottom
        j.keep_deletes = below is None
        j.max_grandparent_overlap = max_grandparent_overlap
        below_list = [] if below is None else merge_intervals(below)
        grandparent_list = sorted(grandparents)
        self.keep = (list(inputs), below_list, grandparent_list, start, stop, keyspace_name)
        if start is not None:
            j.start = start
            j.start_len = len(start)
        if stop is not None:
            j.stop = stop
            j.stop_len = len(stop)
        j.below = make_intervals(below_list)
        j.n_below = len(below_list)
        j.grandparents = make_intervals(grandparent_list)
        j.n_grandparents = len(grandparent_list)
        j.inputs = <JobInput*>calloc(len(self.keep[0]) + 1, sizeof(JobInput))
        if j.inputs == NULL:
            raise MemoryError("job")
        for i, item in enumerate(self.keep[0]):
            self._add_input(i, item)
            j.n_inputs += 1
        j.large_value = <uint64_t>-1
        if large_values is not None:
            j.large_value, j.value_compression = large_values
        self.set_value_logs(collect)

    cdef int set_value_logs(self, collect) except -1:
        """Borrows the value logs of the inputs. There is room for the job's own."""
        cdef JobC* j = &self.j
        cdef ValueLog log
        cdef Py_ssize_t i
        held = {}
        for item in self.keep[0]:
            for source in item if isinstance(item, (list, tuple)) else [item]:
                held.update((log.number, log) for log in source.value_logs)
        if not held and j.large_value == <uint64_t>-1:
            return 0
        logs = [held[number] for number in sorted(held)]
        numbers = array("Q", sorted(set(collect) & held.keys()))
        self.keep = (*self.keep, logs, numbers)
        j.value_logs = <ValueLogC**>calloc(len(logs) + 1, sizeof(ValueLogC*))
        if j.value_logs == NULL:
            raise MemoryError("job")
        for i in range(len(logs)):
            log = logs[i]
            j.value_logs[i] = log.c
        j.n_value_logs = len(logs)
        j.n_collected = len(numbers)
        j.collected = <const uint64_t*><size_t>numbers.buffer_info()[0]
        if numbers or j.large_value != <uint64_t>-1:
            j.own.identity = int.from_bytes(os.urandom(8), "little") or 1
            j.value_logs[len(logs)] = &j.own
            j.n_value_logs += 1
        j.options.value_logs = j.value_logs
        j.options.n_value_logs = j.n_value_logs
        return 0

    def _add_input(self, int i, item):
        cdef JobInput* input_ = &self.j.inputs[i]
        cdef Memtable memtable
        cdef Table table
        cdef int k
        if isinstance(item, Memtable):
            memtable = item
            input_.memtable = memtable.c
            input_.chunk = memtable.c.last
            input_.offset = memtable.c.last.used
            self.input_bytes += memtable.c.used
            self.input_entries += memtable.c.n_entries
            return
        tables = [item] if isinstance(item, Table) else list(item)
        input_.tables = <TableC**>malloc((len(tables) + 1) * sizeof(TableC*))
        if input_.tables == NULL:
            raise MemoryError("job")
        for k in range(len(tables)):
            table = tables[k]
            input_.tables[k] = table.c
            self.input_bytes += table.c.file_size
            self.input_entries += table.c.n_entries
        input_.n_tables = len(tables)

    def __dealloc__(self):
        cdef int i
        for i in range(self.j.n_inputs):
            free(self.j.inputs[i].tables)
        for i in range(self.j.n_outputs):
            meta_free(&self.j.outputs[i])
        free(self.j.inputs)
        free(self.j.below)
        free(self.j.grandparents)
        free(self.j.orders)
        free(self.j.value_logs)
        buf_free(&self.j.damaged_values)
        lsm_free(self.j.outputs)
        free(self.j.first_key)
        free(self.j.cut)

    def run(self):
        """Runs the job without the GIL. Returns its outputs, synced, and its counters. If it raises, it leaves no file behind."""
        cdef Status st
        cdef JobC* j = &self.j
        cdef uint64_t began = lsm_now_ns()
        if self.ran:
            raise Error("a job runs once")
        self.ran = True
        status_clear(&st)
        with nogil:
            job_run(j, &st)
        if st.code == ST_CANCELLED:
            raise Error("the job was cancelled")
        if st.code != ST_OK:
            name = os.fsdecode(self.directory)
            if st.code == ST_CORRUPT and st.file_number:
                name = f"{name}/{st.file_number:06d}.sst"
            raise_status(&st, name)
        return {
            "outputs": [meta_object(&j.outputs[i]) for i in range(j.n_outputs)],
            "bytes_read": self.input_bytes,
            "bytes_written": j.bytes_written,
            "entries_in": self.input_entries,
            "entries_out": j.entries_out,
            "dropped_deletes": j.dropped_deletes,
            "dropped_covered": j.dropped_covered,
            "now": j.now,
            "expired": j.expired,
            "expired_bytes": j.expired_bytes,
            "values_copied": j.values_copied,
            "damaged_values": [(<const uint64_t*>j.damaged_values.data)[i] for i in range(j.damaged_values.len // 8)],
            "filter_build_ns": j.filter_build_ns,
            "filter_verify_ns": j.filter_verify_ns,
            "ns": lsm_now_ns() - began,
        }

    def cancel(self):
        """Makes a running job stop soon."""
        lsm_store32(&self.j.cancelled, 1)

    @property
    def progress(self):
        return {
            "entries_done": lsm_load64(&self.j.entries_in),
            "entries_total": self.input_entries,
            "bytes_total": self.input_bytes,
            "bytes_written": lsm_load64(&self.j.bytes_written),
        }
