from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from lsmkv_ext.entry cimport ENTRY_DELETE
from lsmkv_ext.memtable.arena cimport MemEntry, entry_footprint, entry_key, entry_kind, entry_klen
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_load_ptr
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.growable cimport buf_append, buf_assign, buf_free

cdef enum:
    MOST_SPANS = 64             # of a tree
    LONGEST_KEY = 1024          # bytes; spans with longer keys are not kept
    LOOK_EVERY = 8              # dead entries between looks for a span to jump over
    MOST_SINCE = 1 << 14        # writes since the scan began that its records may look at, all together

cdef const char* NO_KEY = ""    # a buffer that was always empty has no memory
cdef uint64_t _least = 16


def set_least(uint64_t least):
    """How many dead entries in a row make a span, in trees that are opened from now on. For tests. Returns the number so far."""
    global _least
    before, _least = _least, least
    return before


# --- lists of spans ----------------------------------------------------------------------------------------------------

cdef const char* keep_key(char** free_room, const char* key, size_t n) noexcept:
    cdef char* kept = free_room[0]
    memcpy(kept, key, n)
    free_room[0] += n
    return kept


cdef SpanList* list_new(const DeadSpan* items, int n) noexcept:
    """A copy of the spans with their keys. NULL if there are none, or no memory."""
    cdef size_t size = sizeof(SpanList) + n * sizeof(DeadSpan)
    cdef SpanList* made
    cdef char* room
    cdef int i
    for i in range(n):
        size += items[i].start_len + items[i].stop_len
    made = <SpanList*>malloc(size) if n else NULL
    if made == NULL:
        return NULL
    made.refs = 1
    made.n = n
    room = <char*>&made.items[n]
    for i in range(n):
        made.items[i] = items[i]
        made.items[i].start = keep_key(&room, items[i].start, items[i].start_len)
        made.items[i].stop = keep_key(&room, items[i].stop, items[i].stop_len)
    return made


cdef void list_unref(SpanList* known) noexcept:
    if known != NULL:
        known.refs -= 1
        if known.refs == 0:
            free(known)


cdef int find_covering(const SpanList* known, const char* key, size_t klen) noexcept nogil:
    """The index of the span over the key, or -1."""
    cdef int lo = 0, hi = known.n, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if lsm_compare(known.items[mid].start, known.items[mid].start_len, key, klen) <= 0:
            lo = mid + 1
        else:
            hi = mid
    if lo == 0 or lsm_compare(key, klen, known.items[lo - 1].stop, known.items[lo - 1].stop_len) >= 0:
        return -1
    return lo - 1


cdef const DeadSpan* spans_find(const SpanList* known, const char* key, size_t klen, uint64_t snapshot) noexcept nogil:
    cdef int i = find_covering(known, key, klen)
    return &known.items[i] if i >= 0 and known.items[i].seq <= snapshot else NULL


# --- runs of dead entries ------------------------------------------------------------------------------------------------

cdef void run_attach(DeadRun* run, const MemC* m, uint64_t snapshot, DeadSpans spans) noexcept:
    run.snapshot = snapshot
    run.least = spans.least
    run.known = spans.pin()
    run.budget = MOST_SINCE
    run.mark.n_entries = lsm_load64(&m.n_entries)
    run.mark.chunk = <ArenaChunk*>lsm_load_ptr(<void**>&m.last)
    run.mark.offset = lsm_load64(<uint64_t*>&run.mark.chunk.used)
    # Read after `used`, before which an insert stores it.
    run.mark.exact = lsm_load64(&m.max_seq) <= snapshot


cdef void run_start(DeadRun* run, int items, const char* key, size_t klen) noexcept nogil:
    """A fill that began here met nothing before the key, so the span begins there."""
    cdef bint at_origin = items == 0 and run.origin != NULL
    cdef int failed
    run.items = items
    run.until_look = 0
    if at_origin:
        failed = buf_assign(&run.near, run.origin, run.origin_len)
    else:
        run.spans = 0
        failed = buf_assign(&run.near, key, klen)
    if run.direction < 0 and (not at_origin or run.origin_inclusive):
        failed |= buf_append(&run.near, b"\0", 1)
    if failed:
        run.least = <uint64_t>-1        # without memory nothing is recorded


cdef const DeadSpan* run_pass(DeadRun* run, int items, const char* key, size_t klen) noexcept nogil:
    if run.n and run.items != items:
        run_end(run)
    if run.n == 0:
        run_start(run, items, key, klen)
    if buf_assign(&run.far, key, klen) != 0:
        run.least = <uint64_t>-1
    run.n += 1
    if run.known == NULL:
        return NULL
    if run.until_look:
        run.until_look -= 1
        return NULL
    run.until_look = LOOK_EVERY - 1
    return spans_find(run.known, key, klen, run.snapshot)


cdef void run_end(DeadRun* run) noexcept nogil:
    # A span and half as many entries beside it make a larger one, and so do two spans.
    cdef uint64_t n = run.n
    cdef uint64_t worth = n + run.spans * (run.least // 2)
    run.n = 0
    run.spans = 0
    run.origin = NULL
    if n == 0 or worth < run.least or worth <= run.longest:
        return
    run.dead = n
    if run.direction > 0:
        if buf_append(&run.far, b"\0", 1) == 0:
            run.start, run.near = run.near, run.start
            run.stop, run.far = run.far, run.stop
            run.longest = worth
    else:
        run.start, run.far = run.far, run.start
        run.stop, run.near = run.near, run.stop
        run.longest = worth


cdef void run_release(DeadRun* run) noexcept:
    list_unref(run.known)
    run.known = NULL
    buf_free(&run.near)
    buf_free(&run.far)
    buf_free(&run.start)
    buf_free(&run.stop)


# --- the owner -----------------------------------------------------------------------------------------------------------

cdef bint meet(const DeadSpan* a, const DeadSpan* b) noexcept:
    """Whether they overlap or touch."""
    return (lsm_compare(a.start, a.start_len, b.stop, b.stop_len) <= 0
            and lsm_compare(b.start, b.start_len, a.stop, a.stop_len) <= 0)


cdef void widen(DeadSpan* span, const DeadSpan* other) noexcept:
    """Makes it cover the other one too. Both hold from the larger sequence number on."""
    if lsm_compare(other.start, other.start_len, span.start, span.start_len) < 0:
        span.start = other.start
        span.start_len = other.start_len
    if lsm_compare(other.stop, other.stop_len, span.stop, span.stop_len) > 0:
        span.stop = other.stop
        span.stop_len = other.stop_len
    span.seq = max(span.seq, other.seq)
    span.dead += other.dead


cdef bint nearer_to_start(const DeadSpan* span, const char* key, size_t klen) noexcept:
    """Whether the key lies in the first half of the span, judged by 8 bytes."""
    cdef size_t shared = 0
    cdef uint64_t low, at
    while shared < span.start_len and shared < klen and span.start[shared] == key[shared]:
        shared += 1
    low = lsm_prefix8(span.start + shared, span.start_len - shared)
    at = lsm_prefix8(key + shared, klen - shared)
    if shared > span.stop_len or lsm_compare(span.stop, shared, key, shared) != 0:
        return True         # start and key share more with each other than with the stop
    return at - low < lsm_prefix8(span.stop + shared, span.stop_len - shared) - at


cdef int split(const DeadSpan* span, const char* key, size_t klen, char* after, DeadSpan* items, int n) noexcept:
    """Adds what a put leaves of a span. `after` has room for the key that follows. Returns the number of items.

    The shorter part counts half of the entries. If puts follow each other from one end on, the long rest keeps its worth."""
    cdef bint left_is_short
    if klen >= LONGEST_KEY:
        return n
    left_is_short = nearer_to_start(span, key, klen)
    memcpy(after, key, klen)
    after[klen] = 0
    if lsm_compare(span.start, span.start_len, key, klen) < 0:
        items[n] = span[0]
        items[n].stop = key
        items[n].stop_len = klen
        items[n].dead >>= left_is_short
        n += items[n].dead > 0
    if lsm_compare(after, klen + 1, span.stop, span.stop_len) < 0:
        items[n] = span[0]
        items[n].start = after
        items[n].start_len = klen + 1
        items[n].dead >>= not left_is_short
        n += items[n].dead > 0
    return n


cdef int drop_least(DeadSpan* items, int n) noexcept:
    """Drops the span with the fewest entries. Returns the number of the others."""
    cdef int i, least = 0
    for i in range(1, n):
        if items[i].dead < items[least].dead:
            least = i
    for i in range(least, n - 1):
        items[i] = items[i + 1]
    return n - 1


cdef class DeadSpans:
    """The dead spans of a tree."""

    def __cinit__(self):
        self.least = _least

    def __dealloc__(self):
        list_unref(self.known)

    cdef SpanList* pin(self) noexcept:
        if self.known != NULL:
            self.known.refs += 1
        return self.known

    cdef void publish_spans(self, const DeadSpan* items, int n) noexcept:
        """Without memory there are no spans."""
        cdef SpanList* old = self.known
        self.known = list_new(items, n)
        list_unref(old)

    cdef void record_span(self, DeadRun* run, const MemC* m) noexcept:
        cdef bint latest = self.known == run.known
        cdef uint64_t since = lsm_load64(&m.n_entries) - run.mark.n_entries
        if m != self.active or not run.mark.exact or since > run.budget:
            return
        if run.start.len > LONGEST_KEY or run.stop.len > LONGEST_KEY:
            return
        run.budget -= since
        self.add_span(run)
        self.cut_since(&run.mark)
        self.recorded += 1
        if latest:
            # The new span is the only one that the scan did not know.
            list_unref(run.known)
            run.known = self.pin()

    cdef void add_span(self, const DeadRun* run) noexcept:
        cdef DeadSpan items[MOST_SPANS + 1]
        cdef DeadSpan span
        cdef const DeadSpan* other
        cdef int i, n = 0, at = 0
        memset(&span, 0, sizeof(span))
        span.start = run.start.data if run.start.len else NO_KEY
        span.start_len = run.start.len
        span.stop = run.stop.data if run.stop.len else NO_KEY
        span.stop_len = run.stop.len
        span.seq = run.snapshot
        span.dead = run.dead
        for i in range(self.known.n if self.known != NULL else 0):
            other = &self.known.items[i]
            if meet(&span, other):
                widen(&span, other)
                continue
            n += 1
            if lsm_compare(other.start, other.start_len, span.start, span.start_len) < 0:
                items[at] = other[0]
                at += 1
            else:
                items[n] = other[0]
        items[at] = span
        n += 1
        if n > MOST_SPANS:
            n = drop_least(items, n)
        self.publish_spans(items, n)

    cdef void cut_since(self, const WriteMark* mark) noexcept:
        """Lets the puts after the mark cut the spans."""
        cdef ArenaChunk* chunk = mark.chunk
        cdef size_t at = mark.offset
        cdef size_t limit
        cdef MemEntry* e
        while chunk != NULL:
            limit = <size_t>lsm_load64(<uint64_t*>&chunk.used)
            while at < limit:
                e = <MemEntry*>(chunk.base + at)
                if entry_kind(e) != ENTRY_DELETE:
                    self.cut(entry_key(e), entry_klen(e))
                at += entry_footprint(entry_klen(e), e.vlen)
            chunk = <ArenaChunk*>lsm_load_ptr(<void**>&chunk.next)
            at = 0

    cdef void cut(self, const char* key, size_t klen) noexcept:
        cdef DeadSpan items[MOST_SPANS + 1]
        cdef char after[LONGEST_KEY + 1]
        cdef int i, n = 0, found
        found = find_covering(self.known, key, klen) if self.known != NULL else -1
        if found < 0:
            return
        self.cuts += 1
        for i in range(self.known.n):
            if i != found:
                items[n] = self.known.items[i]
                n += 1
                continue
            n = split(&self.known.items[i], key, klen, after, items, n)
        if n > MOST_SPANS:
            n = drop_least(items, n)
        self.publish_spans(items, n)

    @property
    def items(self):
        """[(start, stop, sequence number, dead entries)] in key order."""
        cdef int i
        cdef SpanList* known = self.pin()
        cdef const DeadSpan* span
        out = []
        try:
            for i in range(known.n if known != NULL else 0):
                span = &known.items[i]
                out.append((span.start[:span.start_len], span.stop[:span.stop_len], span.seq, span.dead))
        finally:
            list_unref(known)
        return out
