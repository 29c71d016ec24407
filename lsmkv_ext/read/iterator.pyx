cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from lsmkv_ext.block.block cimport Entry
from lsmkv_ext.filter.kernel cimport filter_probe
from lsmkv_ext.filter.prefix cimport filter_prefix_hash
from lsmkv_ext.memtable.arena cimport ArenaChunk
from lsmkv_ext.memtable.memtable cimport mem_covering_seq, mem_order
from lsmkv_ext.memtable.order cimport mem_order_release
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_load_ptr
from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.compare cimport lsm_compare, prefix_end
from lsmkv_ext.port.handle cimport HandleC, ReadCounters, handle_check
from lsmkv_ext.port.status cimport ST_CORRUPT, ST_OK, fail_memory, raise_status, status_clear
from lsmkv_ext.read.merge cimport (
    merge_add_level,
    merge_add_order,
    merge_add_table,
    merge_close,
    merge_entry,
    merge_first,
    merge_init,
    merge_last,
    merge_next,
    merge_seek,
    merge_seek_before,
)
from lsmkv_ext.read.read_state cimport ReadStateC, read_state_drain
from lsmkv_ext.read.tombstones cimport (
    fragments_add_memtable,
    fragments_add_table,
    fragments_flatten,
    fragments_free,
    ranges_cover,
)
from lsmkv_ext.table.reader cimport TableC

from lsmkv_ext.errors import ClosedError, IteratorInvalidError

cdef enum:
    FIRST_CHUNK = 4             # a seek usually wants a few
    SMALL_CHUNK = 16
    SHORT_WALK = 64
    LARGEST_CHUNK = 512
    FIRST_BYTES = 1600
    OFF_GIL = 64                # chunks from this size on are filled without the GIL
    CHUNK_BYTES = 256 << 10
    # where a fill starts
    FROM_EDGE = 0
    FROM_KEY = 1
    GOING_ON = 2


cdef int bound_set(Bound* bound, object key, bint inclusive) except -1:
    cdef bytes data
    free(bound.key)
    bound.key = NULL
    bound.inclusive = inclusive
    if key is None:
        return 0
    data = as_bytes(key)
    bound.n = PyBytes_GET_SIZE(data)
    bound.key = <char*>malloc(bound.n + 1)
    if bound.key == NULL:
        raise MemoryError("bound")
    memcpy(bound.key, PyBytes_AS_STRING(data), bound.n)
    return 0


cdef bint table_may_hold_prefix(const TableC* t, const char* prefix, size_t n) noexcept nogil:
    """Asks a prefix filter; "maybe" wherever it cannot tell."""
    cdef int has = 0
    cdef uint64_t hash
    if not t.filter.usable or t.filter.prefix_kind == 0 or t.tombstones.n:
        return True
    hash = filter_prefix_hash(t.filter.prefix_kind, t.filter.prefix_arg, prefix, n, t.filter.seed, &has)
    return not has or filter_probe(&t.filter, hash)


# --- filling a chunk (nogil) --------------------------------------------------------------------------------------------

ctypedef struct Fill:           # the parts of a Scan that nogil code needs
    MergeC* merge
    const Fragments* fragments
    const ReadStateC* state
    uint64_t snapshot
    bint probe_memtables
    const Bound* limit          # of the direction of travel
    char** bytes_
    size_t* used
    size_t* capacity
    ChunkItem* items
    int* n_items
    int most
    bint want_value
    Status* st


cdef inline bint within(const Bound* limit, const Entry* e, int direction) noexcept nogil:
    cdef int r
    if limit.key == NULL:
        return True
    r = direction * lsm_compare(e.key, e.klen, limit.key, limit.n)
    return r < 0 or (r == 0 and limit.inclusive)


cdef int append_item(Fill* f, const Entry* e) noexcept nogil:
    cdef size_t n = e.klen + (e.vlen if f.want_value else 0)
    cdef size_t grown
    cdef char* p
    cdef ChunkItem* item
    if f.capacity[0] - f.used[0] < n:
        grown = f.capacity[0] * 2 + n + 1024
        p = <char*>realloc(f.bytes_[0], grown)
        if p == NULL:
            return fail_memory(f.st, b"iterator")
        f.bytes_[0] = p
        f.capacity[0] = grown
    p = f.bytes_[0] + f.used[0]
    memcpy(p, e.key, e.klen)
    if f.want_value:
        memcpy(p + e.klen, e.value, e.vlen)
    item = &f.items[f.n_items[0]]
    item.at = f.used[0]
    item.klen = <uint32_t>e.klen
    item.vlen = <uint32_t>e.vlen
    f.used[0] += n
    f.n_items[0] += 1
    return ST_OK


cdef inline bint range_deleted(const Fill* f, const Entry* e) noexcept nogil:
    cdef int i
    if f.fragments.n and ranges_cover(f.fragments.items, f.fragments.n, e.key, e.klen) > e.seq:
        return True
    if f.probe_memtables:
        for i in range(f.state.n_memtables):
            if mem_covering_seq(f.state.memtables[i], e.key, e.klen, f.snapshot) > e.seq:
                return True
    return False


cdef int fill_chunk(Fill* f) noexcept nogil:
    """Takes entries until the chunk is full or the limit reached. 1 where more may follow, 0 at the end, -1 on error."""
    cdef Entry* e
    cdef int direction = f.merge.direction
    while True:
        e = merge_entry(f.merge)
        if e == NULL or not within(f.limit, e, direction):
            return 0
        if not e.is_delete and not range_deleted(f, e):
            if f.n_items[0] >= f.most or (f.used[0] >= CHUNK_BYTES and f.n_items[0]):
                return 1
            if append_item(f, e) != ST_OK:
                return -1
        if merge_next(f.merge) != ST_OK:
            return -1


cdef int run_fill(Fill* f, int direction, int place, const char* key, size_t klen, bint inclusive) noexcept nogil:
    cdef int code = ST_OK
    if place == FROM_KEY:
        code = (merge_seek(f.merge, key, klen) if direction > 0
                else merge_seek_before(f.merge, key, klen, inclusive))
    elif place == FROM_EDGE:
        code = merge_first(f.merge) if direction > 0 else merge_last(f.merge)
    if code != ST_OK:
        return -1
    return fill_chunk(f)


@cython.no_gc
cdef class Scan(Dependent):
    """What iterators and cursors share: the merge, the bounds and the chunk."""

    cdef int setup(self, ReadState state, uint64_t snapshot, start, stop, bint include_start, bint include_stop, prefix,
                   bint want_value, bint fill_cache) except -1:
        cdef ReadStateC* v = &state.c
        cdef int capacity, i, level
        cdef bytes prefix_bytes = None
        if prefix is not None:
            prefix_bytes = as_bytes(prefix)
            if start is None or as_bytes(start) < prefix_bytes:
                start = prefix_bytes
                include_start = True
            end = prefix_end(prefix_bytes)
            if end is not None and (stop is None or as_bytes(stop) >= end):
                stop = end
                include_stop = False
        bound_set(&self.lower, start, include_start)
        bound_set(&self.upper, stop, include_stop)
        if prefix_bytes is None:
            prefix_bytes = self.common_prefix()
        self.state = state
        self.snapshot = snapshot
        self.want_value = want_value
        self.next_size = FIRST_CHUNK
        self.chunk_direction = 1
        self.rc.fill_cache = fill_cache
        self.rc.scan = True
        self.orders = <MemOrder**>malloc((v.n_memtables + 1) * sizeof(MemOrder*))
        if self.orders == NULL:
            raise MemoryError("iterator")
        status_clear(&self.st)
        self.open_ = True
        self.add_memtables()
        capacity = v.levels[0].n + v.n_levels
        for i in range(self.n_orders):
            capacity += self.orders[i].n_runs
        if merge_init(&self.merge, capacity, &self.rc, &self.st) != ST_OK:
            self.fail()
        for i in range(self.n_orders):
            merge_add_order(&self.merge, self.orders[i], snapshot)
        for i in range(v.levels[0].n):
            if self.may_hold(v.flat[0][i], prefix_bytes):
                merge_add_table(&self.merge, v.flat[0][i])
                self.n_l0 += 1
        for level in range(1, v.n_levels):
            self.add_level(v.flat[level], v.levels[level].n, prefix_bytes)
        self.add_ranges()
        return 0

    cdef bytes common_prefix(self):
        """What every key between the bounds begins with; None where they have nothing in common."""
        cdef size_t n = 0
        if self.lower.key == NULL or self.upper.key == NULL:
            return None
        while n < self.lower.n and n < self.upper.n and self.lower.key[n] == self.upper.key[n]:
            n += 1
        return self.lower.key[:n] if n else None

    cdef int add_level(self, TableC** tables, int n, bytes prefix) except -1:
        """Only the tables between the bounds; where that is one, its prefix filter is asked too."""
        cdef int first = 0, last = n, mid
        while self.lower.key != NULL and first < last:
            mid = (first + last) >> 1
            if lsm_compare(tables[mid].largest, tables[mid].largest_len, self.lower.key, self.lower.n) < 0:
                first = mid + 1
            else:
                last = mid
        last = n
        n = first
        while self.upper.key != NULL and n < last:
            mid = (n + last) >> 1
            if lsm_compare(tables[mid].smallest, tables[mid].smallest_len, self.upper.key, self.upper.n) > 0:
                last = mid
            else:
                n = mid + 1
        if last - first == 1:
            if self.may_hold(tables[first], prefix):
                merge_add_table(&self.merge, tables[first])
        elif last > first:
            merge_add_level(&self.merge, tables + first, last - first)
        return 0

    cdef bint may_hold(self, const TableC* t, bytes prefix):
        """Leaves out a table that the bounds or its prefix filter rule out. (Its range tombstones are kept all the same.)"""
        if self.upper.key != NULL and lsm_compare(t.smallest, t.smallest_len, self.upper.key, self.upper.n) > 0:
            return False
        if self.lower.key != NULL and lsm_compare(t.largest, t.largest_len, self.lower.key, self.lower.n) < 0:
            return False
        return prefix is None or table_may_hold_prefix(t, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))

    cdef int add_memtables(self) except -1:
        cdef ReadStateC* v = &self.state.c
        cdef int i
        cdef ArenaChunk* chunk
        cdef uint64_t offset
        cdef MemOrder* order
        for i in range(v.n_memtables):
            if v.memtables[i].n_entries == 0:
                continue
            chunk = <ArenaChunk*>lsm_load_ptr(<void**>&v.memtables[i].last)
            offset = lsm_load64(<uint64_t*>&chunk.used)
            # Counted: a close in the meantime waits, instead of emptying a scan that is half made.
            self.handle.inflight += 1
            with nogil:
                order = mem_order(v.memtables[i], chunk, offset)
            self.handle.inflight -= 1
            if order == NULL:
                raise MemoryError("memtable order")
            self.orders[self.n_orders] = order
            self.n_orders += 1
        return 0

    cdef int add_ranges(self) except -1:
        cdef ReadStateC* v = &self.state.c
        cdef int i, level, failed = 0
        for i in range(v.n_memtables):
            if lsm_load_ptr(<void**>&v.memtables[i].range_tree) != NULL:
                # So many that flattening them would cost more than what most walks ask.
                self.probe_memtables = True
            else:
                failed |= fragments_add_memtable(&self.fragments, v.memtables[i], self.snapshot)
        if v.table_ranges:
            for level in range(v.n_levels):
                for i in range(v.levels[level].n):
                    failed |= fragments_add_table(&self.fragments, v.flat[level][i])
        if self.fragments.n:
            failed |= fragments_flatten(&self.fragments)
        if failed:
            raise MemoryError("range tombstones")
        return 0

    cdef int fail(self) except -1:
        """Raises what nogil code reported. It stays: whoever goes on without a new seek meets it again."""
        self.n_items = 0
        path = None
        if self.st.code == ST_CORRUPT:
            path = self.path_of(self.st.file_number)
        raise_status(&self.st, path)
        return -1

    cdef object path_of(self, uint64_t number):
        for tables in self.state.levels:
            for table in tables:
                if table.number == number:
                    return table.path
        return None

    cdef int check(self) except -1:
        handle_check(self.handle)
        if not self.open_:
            raise ClosedError("the iterator is closed")
        if self.busy:
            raise RuntimeError("an iterator belongs to one thread: another one is moving it")
        return 0

    cdef void release(self) noexcept:
        cdef int i
        if not self.open_:
            return
        self.open_ = False
        merge_close(&self.merge)
        for i in range(self.n_orders):
            mem_order_release(self.orders[i])
        self.n_orders = 0
        fragments_free(&self.fragments)
        free(self.orders)
        free(self.items)
        free(self.bytes_)
        free(self.lower.key)
        free(self.upper.key)
        self.orders = NULL
        self.items = NULL
        self.bytes_ = NULL
        self.lower.key = NULL
        self.upper.key = NULL
        self.n_items = 0
        self.live = False
        self.state = None

    def __dealloc__(self):
        # Off the list before `owner` goes: it may be the database's last reference, and its close walks that list.
        self.leave()
        self.release()

    def close(self):
        """Lets go of the tables and memory it holds; further use raises ClosedError."""
        if self.busy:
            raise RuntimeError("an iterator belongs to one thread: another one is moving it")
        self.release()
        self.owner = None

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *exc):
        self.close()

    cdef int refill(self, int direction, int place, const char* key, size_t klen, bint inclusive) except -1:
        """Makes a new chunk. The merge then stands behind it, if anything may follow (`live`)."""
        cdef Fill f
        cdef int more
        cdef int n_items = 0
        f.merge = &self.merge
        f.fragments = &self.fragments
        f.state = &self.state.c
        f.snapshot = self.snapshot
        f.probe_memtables = self.probe_memtables
        f.limit = &self.upper if direction > 0 else &self.lower
        f.bytes_ = &self.bytes_
        f.used = &self.used
        f.capacity = &self.capacity
        f.n_items = &n_items
        f.most = self.next_size
        f.want_value = self.want_value
        f.st = &self.st
        self.used = 0
        self.n_items = 0
        self.chunk_direction = direction
        if place != GOING_ON:
            self.fetched = 0
            status_clear(&self.st)
        self.make_room()
        f.items = self.items
        self.handle.inflight += 1
        self.busy = True
        if self.next_size >= OFF_GIL:
            self.rc.gil_held = False
            with nogil:
                more = run_fill(&f, direction, place, key, klen, inclusive)
            read_state_drain(&self.state.c)
        else:
            self.rc.gil_held = True
            more = run_fill(&f, direction, place, key, klen, inclusive)
        self.busy = False
        self.handle.inflight -= 1
        # A failure comes behind the entries in front of it: go_on raises it once they are handed out.
        self.live = more != 0
        if more < 0 and n_items == 0:
            self.fail()
        self.n_items = n_items
        self.fetched += n_items
        # Small steps at first, so that a short walk does not copy what nobody asks for; large ones once it is a scan.
        if self.next_size < SMALL_CHUNK or (self.fetched >= SHORT_WALK and self.next_size < LARGEST_CHUNK):
            self.next_size *= 2
        return self.tally(place != GOING_ON)

    cdef int tally(self, bint seeking) noexcept:
        """Adds what the last fill did to the database's counters."""
        cdef ReadCounters* reads = &self.handle.reads
        reads.cache_hits += self.rc.cache_hits
        reads.disk_reads += self.rc.disk_reads
        reads.disk_bytes += self.rc.disk_bytes
        reads.disk_ns += self.rc.disk_ns
        reads.decompressed += self.rc.decompressed
        self.rc.cache_hits = self.rc.disk_reads = self.rc.disk_bytes = self.rc.disk_ns = self.rc.decompressed = 0
        reads.nexts += self.n_items
        if seeking:
            reads.seeks += 1
            if self.n_l0 > 1:
                self.handle.seek_debt += self.n_l0 - 1
        return 0

    cdef int make_room(self) except -1:
        """Space for next_size items, and for the bytes of a few."""
        cdef ChunkItem* items
        if self.cap_items < self.next_size:
            items = <ChunkItem*>realloc(self.items, self.next_size * sizeof(ChunkItem))
            if items == NULL:
                raise MemoryError("iterator")
            self.items = items
            self.cap_items = self.next_size
        if self.bytes_ == NULL:
            self.bytes_ = <char*>malloc(FIRST_BYTES)
            if self.bytes_ == NULL:
                raise MemoryError("iterator")
            self.capacity = FIRST_BYTES
        return 0

    cdef int from_bound(self, int direction) except -1:
        """The first chunk from the beginning (or backward from the end) of the range."""
        cdef Bound* b = &self.lower if direction > 0 else &self.upper
        self.next_size = FIRST_CHUNK
        if b.key == NULL:
            return self.refill(direction, FROM_EDGE, NULL, 0, False)
        if direction > 0 and not b.inclusive:
            # The smallest key behind `start` is start + one zero byte; bound_set left room for it.
            b.key[b.n] = 0
            return self.refill(direction, FROM_KEY, b.key, b.n + 1, False)
        return self.refill(direction, FROM_KEY, b.key, b.n, b.inclusive)

    cdef int from_key(self, int direction, const char* key, size_t klen, bint inclusive) except -1:
        """From `key` on (>= forward; <= or < backward), but never from outside the bounds."""
        cdef Bound* b = &self.lower if direction > 0 else &self.upper
        cdef int r
        if b.key != NULL:
            r = direction * lsm_compare(key, klen, b.key, b.n)
            if r < 0 or (r == 0 and not b.inclusive):
                return self.from_bound(direction)
        self.next_size = FIRST_CHUNK
        return self.refill(direction, FROM_KEY, key, klen, inclusive)

    cdef int go_on(self) except -1:
        """The next chunk in the same direction; an empty one at the end."""
        if not self.live:
            self.n_items = 0
            return 0
        if self.st.code != ST_OK:
            return self.fail()
        return self.refill(self.chunk_direction, GOING_ON, NULL, 0, False)

    cdef int turn(self, int at) except -1:
        """A chunk in the other direction, starting next to item `at` of this one (exclusive). An empty chunk means that the
        walk ran over the end of the range: then it turns there."""
        cdef int direction = -self.chunk_direction
        cdef bytes key
        if self.n_items == 0:
            if self.st.code != ST_OK:
                return self.fail()
            return self.from_bound(direction)
        key = self.item_key(at)
        if direction > 0:
            key = key + b"\0"
        return self.from_key(direction, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), False)

    cdef object item_key(self, int i):
        return PyBytes_FromStringAndSize(self.bytes_ + self.items[i].at, self.items[i].klen)

    cdef object item_value(self, int i):
        return PyBytes_FromStringAndSize(self.bytes_ + self.items[i].at + self.items[i].klen, self.items[i].vlen)


@cython.no_gc
cdef class Iterator(Scan):
    """Stands between two entries: next() gives the one behind, prev() the one in front.

    >>> it = db.iterator(prefix=b"user:")      # doctest: +SKIP
    >>> next(it)                               # doctest: +SKIP
    (b'user:1', b'ada')
    """

    def __iter__(self):
        return self

    cdef object give(self, int i):
        cdef object pair, key, value
        if self.shape == 1:
            return self.item_key(i)
        if self.shape == 2:
            return self.item_value(i)
        if self.shape == 3:
            return None
        key = self.item_key(i)
        value = self.item_value(i)
        pair = PyTuple_New(2)
        Py_INCREF(key)
        PyTuple_SET_ITEM(pair, 0, key)
        Py_INCREF(value)
        PyTuple_SET_ITEM(pair, 1, value)
        return pair

    cdef object step(self, int direction):
        """One entry in a direction of key order, or None (with nothing moved) at the end."""
        if not self.started:
            # The gap is at the start of the walk: the lower bound, or the upper one when reversed.
            self.started = True
            self.at = 0
            self.from_bound(self.forward)
        if direction == self.chunk_direction:
            if self.at == self.n_items:
                if not self.live:
                    return END
                self.at = 0
                self.go_on()
                if self.n_items == 0:
                    return END
            self.at += 1
            return self.give(self.at - 1)
        if self.at == 0:
            self.turn(0)
            self.at = 0
            if self.n_items == 0:
                return END
            self.at = 1
            return self.give(0)
        self.at -= 1
        return self.give(self.at)

    def __next__(self):
        cdef object got
        handle_check(self.handle)
        # The usual step: within the chunk, onward.
        if self.at < self.n_items and self.chunk_direction == self.forward:
            self.at += 1
            return self.give(self.at - 1)
        self.check()
        got = self.step(self.forward)
        if got is END:
            raise StopIteration
        return got

    def next(self):
        """The next entry; StopIteration at the end."""
        return self.__next__()

    def prev(self):
        """The entry that was passed last; StopIteration at the beginning."""
        self.check()
        got = self.step(-self.forward)
        if got is END:
            raise StopIteration
        return got

    def take(self, Py_ssize_t n):
        """Up to n next entries as a list, without a Python call for each. Where a damaged block comes in between, those in
        front of it; the next call raises."""
        cdef list out = []
        cdef object got
        self.check()
        try:
            while n > 0:
                got = self.step(self.forward)
                if got is END:
                    break
                out.append(got)
                n -= 1
        except Exception:
            if not out or self.st.code == ST_OK:
                raise
        return out

    def seek(self, target):
        """Moves in front of the first key >= target (for a reverse iterator: behind the last key <= target)."""
        cdef bytes key = as_bytes(target)
        self.check()
        self.started = True
        self.at = 0
        self.from_key(self.forward, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), True)

    def seek_to_start(self):
        """In front of the first entry of the range, in the iterator's own order."""
        self.check()
        self.started = True
        self.at = 0
        self.from_bound(self.forward)

    def seek_to_stop(self):
        """Behind the last entry of the range, in the iterator's own order."""
        self.check()
        self.started = True
        # A chunk made backward from the end, with the gap in front of all of it.
        self.at = 0
        self.from_bound(-self.forward)

    def skip(self, Py_ssize_t n):
        """Passes over up to n entries; returns how many there were."""
        cdef Py_ssize_t passed = 0
        cdef int shape = self.shape
        cdef int room
        self.check()
        if not self.started:
            self.started = True
            self.at = 0
            self.from_bound(self.forward)
        while passed < n:
            if self.chunk_direction != self.forward or self.at == self.n_items:
                self.shape = 3
                try:
                    if self.step(self.forward) is END:
                        break
                finally:
                    self.shape = shape
                passed += 1
                continue
            room = self.n_items - self.at
            if room > n - passed:
                room = <int>(n - passed)
            self.at += room
            passed += room
        return passed


cdef object END = object()


@cython.no_gc
cdef class Cursor(Scan):
    """Stands on an entry, or on none (`valid` is False)."""

    @property
    def valid(self):
        """Whether it stands on an entry."""
        return self.open_ and self.on >= 0

    cdef int settle(self) except -1:
        self.on = 0 if self.n_items else -1
        return 0

    def seek(self, target):
        """To the first key >= target; returns whether there is one."""
        cdef bytes key = as_bytes(target)
        self.check()
        self.on = -1
        self.from_key(1, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), True)
        self.settle()
        return self.on >= 0

    def seek_for_prev(self, target):
        """To the last key <= target; returns whether there is one."""
        cdef bytes key = as_bytes(target)
        self.check()
        self.on = -1
        self.from_key(-1, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), True)
        self.settle()
        return self.on >= 0

    def seek_to_first(self):
        self.check()
        self.on = -1
        self.from_bound(1)
        self.settle()
        return self.on >= 0

    def seek_to_last(self):
        self.check()
        self.on = -1
        self.from_bound(-1)
        self.settle()
        return self.on >= 0

    cdef bint move(self, int direction) except -1:
        self.check()
        if self.on < 0:
            raise IteratorInvalidError("the cursor stands on no entry: seek first")
        if direction == self.chunk_direction:
            if self.on + 1 < self.n_items:
                self.on += 1
                return True
            self.on = -1
            self.go_on()
        elif self.on > 0:
            self.on -= 1
            return True
        else:
            self.on = -1
            self.turn(0)
        self.settle()
        return self.on >= 0

    def next(self):
        """To the following key; returns whether there is one."""
        return bool(self.move(1))

    def prev(self):
        """To the preceding key; returns whether there is one."""
        return bool(self.move(-1))

    cdef int stand(self) except -1:
        self.check()
        if self.on < 0:
            raise IteratorInvalidError("the cursor stands on no entry")
        return 0

    def key(self):
        self.stand()
        return self.item_key(self.on)

    def value(self):
        self.stand()
        return self.item_value(self.on)

    def item(self):
        self.stand()
        return (self.item_key(self.on), self.item_value(self.on))


cdef Iterator new_iterator(HandleC* handle, ReadState state, uint64_t snapshot, start, stop, bint include_start, bint include_stop,
                           prefix, bint reverse, bint include_key, bint include_value, bint fill_cache):
    cdef Iterator it = Iterator.__new__(Iterator)
    it.join(handle)
    it.setup(state, snapshot, start, stop, include_start, include_stop, prefix, include_value, fill_cache)
    it.forward = -1 if reverse else 1
    it.shape = 0 if include_key and include_value else (1 if include_key else (2 if include_value else 3))
    return it


cdef Cursor new_cursor(HandleC* handle, ReadState state, uint64_t snapshot, start, stop, prefix, bint fill_cache):
    cdef Cursor cursor = Cursor.__new__(Cursor)
    cursor.join(handle)
    cursor.setup(state, snapshot, start, stop, True, False, prefix, True, fill_cache)
    cursor.on = -1
    return cursor
