cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from lsmkv_ext.block.memory cimport Entry
from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, ENTRY_POINTER, expiry_of, expiry_size
from lsmkv_ext.filter.kernel cimport filter_probe
from lsmkv_ext.filter.prefix cimport filter_prefix_hash
from lsmkv_ext.memtable.arena cimport ArenaChunk
from lsmkv_ext.memtable.memtable cimport mem_covering_span, mem_order, mem_order_short
from lsmkv_ext.memtable.order cimport mem_order_release
from lsmkv_ext.memtable.tombstones cimport Span
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_load_ptr
from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.compare cimport lsm_compare, prefix_end
from lsmkv_ext.port.handle cimport ReadCounters, handle_check
from lsmkv_ext.port.status cimport ST_OK, fail_memory, status_clear
from lsmkv_ext.port.wall_clock cimport has_passed
from lsmkv_ext.read.dead_spans cimport (
    DeadSpan,
    run_attach,
    run_begin,
    run_end,
    run_jump,
    run_pass,
    run_release,
    spans_find,
)
from lsmkv_ext.read.merge cimport (
    merge_add_level,
    merge_add_order,
    merge_add_table,
    merge_close,
    merge_count_dead,
    merge_entry,
    merge_first,
    merge_init,
    merge_last,
    merge_next,
    merge_seek,
    merge_seek_before,
    merge_skip_to,
)
from lsmkv_ext.read.read_state cimport raise_read, read_state_drain
from lsmkv_ext.read.tombstones cimport (
    fragments_add_memtable,
    fragments_add_table,
    fragments_find,
    fragments_flatten,
    fragments_free,
)
from lsmkv_ext.read.values cimport find_value, read_value
from lsmkv_ext.table.format cimport RangeTombstone
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ValueLogC

from lsmkv_ext.errors import ClosedError

cdef enum:
    FIRST_CHUNK = 4             # items; most seeks read a few
    SMALL_CHUNK = 16            # chunks grow to this at once,
    SHORT_SCAN = 64             # and beyond it only after this many items
    LARGEST_CHUNK = 512
    FIRST_BYTES = 1600          # of the first chunk's buffer
    OFF_GIL = LARGEST_CHUNK     # chunks from this size on are filled without the GIL
    CHUNK_BYTES = 256 << 10
    LONGEST_SHOWN = 32          # bytes of a key in a repr
    SKIP_EVERY = 8              # dead entries between attempts to skip


cdef int bound_set(Bound* bound, bytes key, bint inclusive) except -1:
    bound.inclusive = inclusive
    if key is None:
        return 0
    bound.n = PyBytes_GET_SIZE(key)
    # One byte more: from_bound appends a zero.
    bound.key = <char*>malloc(bound.n + 1)
    if bound.key == NULL:
        raise MemoryError("bound")
    memcpy(bound.key, PyBytes_AS_STRING(key), bound.n)
    return 0


cdef bytes optional_bytes(object key):
    return None if key is None else as_bytes(key)


cdef bint table_may_hold_prefix(const TableC* t, const char* prefix, size_t n) noexcept nogil:
    """Probes the prefix filter. True if it cannot tell."""
    cdef int has = 0
    cdef uint64_t hash
    if not t.filter.usable or t.filter.prefix_kind == 0 or t.tombstones.n:
        return True
    hash = filter_prefix_hash(t.filter.prefix_kind, t.filter.prefix_arg, prefix, n, t.filter.seed, &has)
    return not has or filter_probe(&t.filter, hash)


# --- filling a chunk (nogil) --------------------------------------------------------------------------------------------

cdef inline bint within(const Bound* limit, const Entry* e, int direction) noexcept nogil:
    cdef int r
    if limit.key == NULL:
        return True
    r = direction * lsm_compare(e.key, e.klen, limit.key, limit.n)
    return r < 0 or (r == 0 and limit.inclusive)


cdef inline int append_item(ScanC* s, const Entry* e) noexcept nogil:
    cdef Chunk* chunk = &s.chunk
    cdef size_t hidden = 0
    cdef size_t vlen = e.vlen
    cdef size_t n
    cdef size_t grown
    cdef char* p
    cdef ChunkItem* item
    cdef ValueLogC* log = NULL
    cdef ValuePointer pointer
    cdef uint32_t marked = 0
    if e.kind:
        hidden = expiry_size(e.kind)
        vlen -= hidden
        if e.kind & ENTRY_POINTER and s.keep_pointers:
            marked = POINTER_ITEM
        elif e.kind & ENTRY_POINTER and s.want_value:
            log = find_value(s.state, e.value + hidden, &pointer, &s.st)
            if log == NULL:
                return s.st.code
            vlen = pointer.raw
    n = e.klen + (vlen if s.want_value else 0)
    if chunk.capacity - chunk.used < n:
        grown = chunk.capacity * 2 + n + 1024
        p = <char*>realloc(chunk.data, grown)
        if p == NULL:
            return fail_memory(&s.st, b"iterator")
        chunk.data = p
        chunk.capacity = grown
    p = chunk.data + chunk.used
    memcpy(p, e.key, e.klen)
    if log != NULL:
        if read_value(log, &pointer, p + e.klen, &s.rc, &s.st) != ST_OK:
            return s.st.code
    elif s.want_value:
        memcpy(p + e.klen, e.value + hidden, vlen)
    item = &chunk.items[chunk.n]
    item.at = chunk.used
    item.klen = <uint32_t>e.klen
    item.vlen = <uint32_t>vlen | marked
    chunk.used += n
    chunk.n += 1
    return ST_OK


cdef bint covering(const ScanC* s, const Entry* e, RangeTombstone* out) noexcept nogil:
    """Finds a fragment or span over the entry. It deletes every entry in its range that is no newer than this one."""
    cdef const RangeTombstone* fragment = fragments_find(s.fragments.items, s.fragments.n, e.key, e.klen)
    cdef const Span* span
    cdef int i
    if fragment != NULL and fragment.seq > e.seq:
        out[0] = fragment[0]
        return True
    if s.search_memtables:
        for i in range(s.state.n_memtables):
            span = mem_covering_span(s.state.memtables[i], e.key, e.klen, s.snapshot)
            if span != NULL and span.seq > e.seq:
                out.start = span.start
                out.start_len = span.start_len
                out.stop = span.stop
                out.stop_len = span.stop_len
                out.seq = span.seq
                return True
    return False


cdef inline bint range_covers(const ScanC* s, const Entry* e, RangeTombstone* out) noexcept nogil:
    return (s.fragments.n or s.search_memtables) and covering(s, e, out)


cdef inline bint is_expired(ScanC* s, const Entry* e) noexcept nogil:
    return e.kind & ENTRY_EXPIRY and has_passed(&s.moment, expiry_of(e.value))


cdef inline bint has_ended(ScanC* s, const Entry* e) noexcept nogil:
    """Whether an entry that is no plain value is a tombstone or expired."""
    return e.kind == ENTRY_DELETE or is_expired(s, e)


cdef int jump(ScanC* s, const DeadSpan* span) noexcept nogil:
    """Moves out of a dead span. No source has a live entry in it, so all of them move."""
    run_jump(&s.run)
    if s.merge.direction > 0:
        return merge_skip_to(&s.merge, span.stop, span.stop_len, <uint64_t>-1)
    return merge_skip_to(&s.merge, span.start, span.start_len, <uint64_t>-1)


cdef int pass_dead(ScanC* s, const Entry* e) noexcept nogil:
    """Moves past a deleted or expired entry, or out of its dead span. Every SKIP_EVERY-th time it skips all that the same range
    tombstone deletes: a skip seeks in every source, which costs more than a few steps."""
    cdef RangeTombstone r
    cdef bint skip
    cdef const DeadSpan* span = NULL
    s.dead += 1
    if is_expired(s, e):
        run_end(&s.run)
    else:
        merge_count_dead(&s.merge)
        span = run_pass(&s.run, s.chunk.n, e.key, e.klen)
    if span != NULL:
        return jump(s, span)
    skip = s.dead % SKIP_EVERY == 0 and range_covers(s, e, &r)
    if merge_next(&s.merge) != ST_OK or not skip:
        return s.st.code
    if s.merge.direction > 0:
        return merge_skip_to(&s.merge, r.stop, r.stop_len, r.seq)
    return merge_skip_to(&s.merge, r.start, r.start_len, r.seq)


cdef inline Entry* live_entry(ScanC* s) noexcept nogil:
    cdef Entry* e
    cdef int direction = s.merge.direction
    cdef const Bound* limit = &s.upper if direction > 0 else &s.lower
    cdef RangeTombstone r
    while True:
        e = merge_entry(&s.merge)
        if e == NULL or not within(limit, e, direction):
            return NULL
        if not ((e.kind and has_ended(s, e)) or range_covers(s, e, &r)):
            return e
        if pass_dead(s, e) != ST_OK:
            return NULL


cdef Entry* scan_entry(ScanC* s) noexcept nogil:
    return live_entry(s)


cdef int fill_chunk(ScanC* s) noexcept nogil:
    """Adds entries until the chunk is full or the bound is reached. Returns 1 if more may follow, 0 at the end, -1 on error."""
    cdef Entry* e
    while True:
        e = live_entry(s)
        if e == NULL:
            return -1 if s.st.code != ST_OK else 0
        if s.chunk.n >= s.chunk_limit or (s.chunk.used >= CHUNK_BYTES and s.chunk.n):
            return 1
        if append_item(s, e) != ST_OK or merge_next(&s.merge) != ST_OK:
            return -1


cdef int seek_live(ScanC* s, int direction, int origin, const char* key, size_t klen, bint inclusive) noexcept nogil:
    """Seeks the first entry of the scan, or the end of the dead span that it would begin in."""
    cdef const DeadSpan* span = NULL
    if s.run.known != NULL and key != NULL:
        span = spans_find(s.run.known, key, klen, s.snapshot)
    if span != NULL:
        run_jump(&s.run)
        if direction > 0:
            return merge_seek(&s.merge, span.stop, span.stop_len)
        return merge_seek_before(&s.merge, span.start, span.start_len, False)
    if origin == FROM_EDGE:
        return merge_first(&s.merge) if direction > 0 else merge_last(&s.merge)
    return merge_seek(&s.merge, key, klen) if direction > 0 else merge_seek_before(&s.merge, key, klen, inclusive)


cdef int scan_start(ScanC* s, int direction, int origin, const char* key, size_t klen, bint inclusive) noexcept nogil:
    s.chunk.used = 0
    s.chunk.n = 0
    if origin == FROM_EDGE and direction > 0:
        key = b""       # the smallest key
    run_begin(&s.run, direction, key, klen, inclusive)
    if origin == CONTINUE:
        return ST_OK
    return seek_live(s, direction, origin, key, klen, inclusive)


cdef int start_fill(ScanC* s, int direction, int origin, const char* key, size_t klen, bint inclusive) noexcept nogil:
    cdef int more
    if scan_start(s, direction, origin, key, klen, inclusive) != ST_OK:
        return -1
    more = fill_chunk(s)
    run_end(&s.run)
    return more


cdef str shortened(bytes key):
    """For a repr."""
    return repr(key) if len(key) <= LONGEST_SHOWN else f"{key[:LONGEST_SHOWN]!r}..."


@cython.no_gc_clear     # __dealloc__ needs the state; cycles are broken at the owner
cdef class Scan(Dependent):
    """The base of iterators and cursors: the merge, the bounds and the chunk."""

    cdef int configure(self, start, stop, bint include_start, bint include_stop, prefix, bint want_value,
                       bint fill_cache) except -1:
        cdef bytes common
        self.prefix = optional_bytes(prefix)
        self.set_bounds(optional_bytes(start), optional_bytes(stop), include_start, include_stop)
        common = self.common_prefix()
        if self.prefix is None or (common is not None and len(common) > len(self.prefix)):
            self.prefix = common
        self.c.want_value = want_value
        self.c.chunk_limit = FIRST_CHUNK
        self.c.rc.fill_cache = fill_cache
        self.c.rc.scan = True
        self.chunk_direction = 1
        return 0

    cdef int attach(self, Dependent owner, ReadState state, uint64_t snapshot, uint64_t now) except -1:
        cdef ReadStateC* v = &state.c
        cdef int capacity, i
        self.join(owner.handle)
        self.owner = owner
        self.open_ = True
        self.state = state
        self.c.state = v
        self.c.snapshot = snapshot
        self.c.moment.clock = &self.handle.clock
        self.c.moment.now = now
        self.orders = <MemOrder**>malloc((v.n_memtables + 1) * sizeof(MemOrder*))
        if self.orders == NULL:
            raise MemoryError("iterator")
        status_clear(&self.c.st)
        run_attach(&self.c.run, v.memtables[0], snapshot, state.spans)
        self.add_memtables()
        capacity = v.levels[0].n + v.n_levels
        for i in range(self.n_orders):
            capacity += self.orders[i].n_runs
        if merge_init(&self.c.merge, capacity, &self.c.rc, &self.c.st) != ST_OK:
            self.fail()
        for i in range(self.n_orders):
            merge_add_order(&self.c.merge, self.orders[i], snapshot)
        self.add_tables()
        self.add_range_tombstones()
        return 0

    cdef int set_bounds(self, bytes start, bytes stop, bint include_start, bint include_stop) except -1:
        cdef bytes end
        if self.prefix is not None:
            if start is None or start < self.prefix:
                start = self.prefix
                include_start = True
            end = prefix_end(self.prefix)
            if end is not None and (stop is None or stop >= end):
                stop = end
                include_stop = False
        bound_set(&self.c.lower, start, include_start)
        bound_set(&self.c.upper, stop, include_stop)
        return 0

    cdef bytes common_prefix(self):
        """The prefix that all keys between the bounds share; None if it is empty."""
        cdef const Bound* lower = &self.c.lower
        cdef const Bound* upper = &self.c.upper
        cdef size_t n = 0
        if lower.key == NULL or upper.key == NULL:
            return None
        while n < lower.n and n < upper.n and lower.key[n] == upper.key[n]:
            n += 1
        if n < lower.n and n + 1 == upper.n and not upper.inclusive and <uint8_t>upper.key[n] - <uint8_t>lower.key[n] == 1:
            n += 1                      # the stop is the first key beyond this prefix
        return lower.key[:n] if n else None

    cdef int add_tables(self) except -1:
        cdef ReadStateC* v = &self.state.c
        cdef int i, level
        for i in range(v.levels[0].n):
            if self.may_hold(v.flat[0][i]):
                merge_add_table(&self.c.merge, v.flat[0][i])
                self.n_l0 += 1
        for level in range(1, v.n_levels):
            self.add_level(v.flat[level], v.levels[level].n)
        return 0

    cdef int add_level(self, TableC** tables, int n) except -1:
        """Adds the tables between the bounds. A single one may be ruled out by its prefix filter."""
        cdef const Bound* lower = &self.c.lower
        cdef const Bound* upper = &self.c.upper
        cdef int first = 0, last = n, mid
        while lower.key != NULL and first < last:
            mid = (first + last) >> 1
            if lsm_compare(tables[mid].largest, tables[mid].largest_len, lower.key, lower.n) < 0:
                first = mid + 1
            else:
                last = mid
        last = n
        n = first
        while upper.key != NULL and n < last:
            mid = (n + last) >> 1
            if lsm_compare(tables[mid].smallest, tables[mid].smallest_len, upper.key, upper.n) > 0:
                last = mid
            else:
                n = mid + 1
        if last - first == 1:
            if self.may_hold(tables[first]):
                merge_add_table(&self.c.merge, tables[first])
        elif last > first:
            merge_add_level(&self.c.merge, tables + first, last - first)
        return 0

    cdef bint may_hold(self, const TableC* t):
        """False for a table that the bounds or its prefix filter rule out. (Its range tombstones still count.)"""
        cdef const Bound* lower = &self.c.lower
        cdef const Bound* upper = &self.c.upper
        if upper.key != NULL and lsm_compare(t.smallest, t.smallest_len, upper.key, upper.n) > 0:
            return False
        if lower.key != NULL and lsm_compare(t.largest, t.largest_len, lower.key, lower.n) < 0:
            return False
        return self.prefix is None or table_may_hold_prefix(t, PyBytes_AS_STRING(self.prefix), PyBytes_GET_SIZE(self.prefix))

    cdef int add_memtables(self) except -1:
        cdef ReadStateC* v = &self.state.c
        cdef int i
        cdef ArenaChunk* chunk
        cdef uint64_t offset
        cdef MemOrder* order = NULL
        for i in range(v.n_memtables):
            if lsm_load64(&v.memtables[i].n_entries) == 0:
                continue
            chunk = <ArenaChunk*>lsm_load_ptr(<void**>&v.memtables[i].last)
            offset = lsm_load64(<uint64_t*>&chunk.used)
            if not mem_order_short(v.memtables[i], chunk, offset, &order):
                # In flight: a close waits, or it would release a half-made scan.
                self.handle.inflight += 1
                with nogil:
                    order = mem_order(v.memtables[i], chunk, offset)
                self.handle.inflight -= 1
            if order == NULL:
                raise MemoryError("memtable order")
            self.orders[self.n_orders] = order
            self.n_orders += 1
        return 0

    cdef int add_range_tombstones(self) except -1:
        cdef ReadStateC* v = &self.state.c
        cdef Fragments* fragments = &self.c.fragments
        cdef int i, level, failed = 0
        for i in range(v.n_memtables):
            if lsm_load_ptr(<void**>&v.memtables[i].tombstone_tree) != NULL:
                # Flattening this many would cost more than most scans gain.
                self.c.search_memtables = True
            else:
                failed |= fragments_add_memtable(fragments, v.memtables[i], self.c.snapshot)
        if v.table_tombstones:
            for level in range(v.n_levels):
                for i in range(v.levels[level].n):
                    failed |= fragments_add_table(fragments, v.flat[level][i])
        if fragments.n:
            failed |= fragments_flatten(fragments)
        if failed:
            raise MemoryError("range tombstones")
        return 0

    cdef int fail(self) except -1:
        """Raises the status, which stays: a step without a new seek raises it again."""
        self.n_items = 0
        return raise_read(self.state, &self.c.st, None)

    def _position(self):
        """Where it is, for its repr."""
        return ""

    def __repr__(self):
        cdef bytes lower = None
        cdef bytes upper = None
        cdef bint includes_lower = self.c.lower.inclusive
        cdef bint includes_upper = self.c.upper.inclusive
        name = type(self).__name__
        if self.handle == NULL or self.handle.closed or not self.open_:
            return f"<lsmkv.{name} (closed)>"
        if self.c.lower.key != NULL:
            lower = PyBytes_FromStringAndSize(self.c.lower.key, self.c.lower.n)
        if self.c.upper.key != NULL:
            upper = PyBytes_FromStringAndSize(self.c.upper.key, self.c.upper.n)
        low = "" if lower is None else f" from {shortened(lower)}" if includes_lower else f" after {shortened(lower)}"
        high = "" if upper is None else f" to {shortened(upper)}" if includes_upper else f" to before {shortened(upper)}"
        return f"<lsmkv.{name}{low or ' from the first key'}{high or ' to the last'}{self._position()}>"

    cdef int check(self) except -1:
        handle_check(self.handle)
        if not self.open_:
            raise ClosedError("the iterator is closed")
        if self.busy:
            raise RuntimeError("an iterator belongs to one thread: another one is moving it")
        return 0

    cdef void release(self) noexcept:
        cdef int i
        self.open_ = False
        merge_close(&self.c.merge)
        for i in range(self.n_orders):
            mem_order_release(self.orders[i])
        self.n_orders = 0
        fragments_free(&self.c.fragments)
        run_release(&self.c.run)
        free(self.orders)
        free(self.c.chunk.items)
        free(self.c.chunk.data)
        free(self.c.lower.key)
        free(self.c.upper.key)
        self.orders = NULL
        self.c.chunk.items = NULL
        self.c.chunk.data = NULL
        self.c.lower.key = NULL
        self.c.upper.key = NULL
        self.n_items = 0
        self.live = False
        self.state = None

    def __dealloc__(self):
        # Leave the list before `owner` goes: that may be the last reference to the database, whose close walks the list.
        self.leave()
        self.release()

    def close(self):
        """Release the files and the memory it holds. Further calls raise `ClosedError`.

        >>> it = db.iterator()
        >>> it.close()
        """
        if self.busy:
            raise RuntimeError("an iterator belongs to one thread: another one is moving it")
        self.release()
        self.owner = None

    @property
    def _dead(self):
        """Deleted entries passed one by one; skipped ones do not count."""
        return self.c.dead

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *exc):
        self.close()

    cdef int refill(self, int direction, int origin, const char* key, size_t klen, bint inclusive) except -1:
        """Fills a new chunk. The merge is then past its last item, if anything may follow (`live`)."""
        cdef int more
        self.n_items = 0
        self.chunk_direction = direction
        if origin != CONTINUE:
            self.fetched = 0
            status_clear(&self.c.st)
        self.make_room()
        self.handle.inflight += 1
        self.busy = True
        if self.c.chunk_limit >= OFF_GIL:
            self.c.rc.gil_held = False
            with nogil:
                more = start_fill(&self.c, direction, origin, key, klen, inclusive)
            read_state_drain(&self.state.c)
        else:
            self.c.rc.gil_held = True
            more = start_fill(&self.c, direction, origin, key, klen, inclusive)
        self.busy = False
        self.handle.inflight -= 1
        self.record_dead()
        # Entries before a failure are returned first; next_chunk raises it afterwards.
        self.live = more != 0
        if more < 0 and self.c.chunk.n == 0:
            self.fail()
        self.n_items = self.c.chunk.n
        self.fetched += self.n_items
        # Small chunks first: a short scan should not copy entries that it does not use.
        if self.c.chunk_limit < SMALL_CHUNK or (self.fetched >= SHORT_SCAN and self.c.chunk_limit < LARGEST_CHUNK):
            self.c.chunk_limit *= 2
        return self.add_counters(origin != CONTINUE)

    cdef int record_dead(self) noexcept:
        if self.c.run.longest:
            self.state.spans.record_span(&self.c.run, self.state.c.memtables[0])
        return 0

    cdef int add_counters(self, bint seeking) noexcept:
        """Adds the counters of the last fill to the database's."""
        cdef ReadCounters* reads = &self.handle.reads
        cdef ReadContext* rc = &self.c.rc
        reads.cache_hits += rc.cache_hits
        reads.disk_reads += rc.disk_reads
        reads.disk_bytes += rc.disk_bytes
        reads.disk_ns += rc.disk_ns
        reads.decompressed += rc.decompressed
        rc.cache_hits = rc.disk_reads = rc.disk_bytes = rc.disk_ns = rc.decompressed = 0
        reads.dead_passed += self.c.dead - self.dead_counted
        self.dead_counted = self.c.dead
        reads.spans_jumped += self.c.run.jumps
        self.c.run.jumps = 0
        self.state.c.dead_debt += self.c.merge.dead
        self.c.merge.dead = 0
        reads.nexts += self.n_items
        if seeking:
            reads.seeks += 1
            if self.n_l0 > 1:
                self.state.c.seek_debt += self.n_l0 - 1
        return 0

    cdef int make_room(self) except -1:
        """Makes space for the items of the next chunk, and for the bytes of a few."""
        cdef Chunk* chunk = &self.c.chunk
        cdef ChunkItem* items
        if chunk.cap_items < self.c.chunk_limit:
            items = <ChunkItem*>realloc(chunk.items, self.c.chunk_limit * sizeof(ChunkItem))
            if items == NULL:
                raise MemoryError("iterator")
            chunk.items = items
            chunk.cap_items = self.c.chunk_limit
        if chunk.data == NULL:
            chunk.data = <char*>malloc(FIRST_BYTES)
            if chunk.data == NULL:
                raise MemoryError("iterator")
            chunk.capacity = FIRST_BYTES
        return 0

    cdef int from_bound(self, int direction) except -1:
        cdef Bound* b = &self.c.lower if direction > 0 else &self.c.upper
        self.c.chunk_limit = FIRST_CHUNK
        if b.key == NULL:
            return self.refill(direction, FROM_EDGE, NULL, 0, False)
        if direction > 0 and not b.inclusive:
            # The smallest key above `start` is start + one zero byte.
            b.key[b.n] = 0
            return self.refill(direction, FROM_KEY, b.key, b.n + 1, False)
        return self.refill(direction, FROM_KEY, b.key, b.n, b.inclusive)

    cdef int from_key(self, int direction, const char* key, size_t klen, bint inclusive) except -1:
        cdef Bound* b = &self.c.lower if direction > 0 else &self.c.upper
        cdef int r
        if b.key != NULL:
            r = direction * lsm_compare(key, klen, b.key, b.n)
            if r < 0 or (r == 0 and not b.inclusive):
                return self.from_bound(direction)
        self.c.chunk_limit = FIRST_CHUNK
        return self.refill(direction, FROM_KEY, key, klen, inclusive)

    cdef int next_chunk(self) except -1:
        if not self.live:
            self.n_items = 0
            return 0
        if self.c.st.code != ST_OK:
            return self.fail()
        return self.refill(self.chunk_direction, CONTINUE, NULL, 0, False)

    cdef int reverse(self) except -1:
        cdef int direction = -self.chunk_direction
        cdef bytes key
        if self.n_items == 0:
            # The scan ran past the end of the range and reverses there.
            if self.c.st.code != ST_OK:
                return self.fail()
            return self.from_bound(direction)
        key = item_key(self, 0)
        if direction > 0:
            key = key + b"\0"
        return self.from_key(direction, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), False)
