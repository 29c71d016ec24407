# Dead spans: ranges of keys in which a scan found nothing but deleted entries. Later scans jump over them.
#
# A span (start, stop, seq) says that no reader at `seq` or later sees a key in [start, stop). It is a fact of the merged view:
# the tombstones of one source prove nothing about the keys between them. It is kept in memory, and never an entry.
#
# Only a put or an ingest adds keys to the view. Every put cuts the spans of its tree in one step with becoming visible, and an
# ingest leaves none. A rotation, flush or compaction does not change the view, so spans outlive them. An expired entry is never
# in a span: a snapshot may judge by an earlier time.
#
# DeadSpans is the owner. A tree has one, and each ReadState passes it on to the next. A scan keeps the list of spans of the
# moment when it began: those in later lists may be too new for it. After each chunk it records the longest run of dead entries
# that it met. The scan may be older than the last put: its mark tells which puts came since, and these cut the new span.
#
# GIL-protected: all fields, and the reference counts of lists. A list itself never changes, so a scan reads it without the GIL.

from libc.stdint cimport uint64_t

from lsmkv_ext.memtable.arena cimport ArenaChunk
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.port.growable cimport GrowBuf

ctypedef struct DeadSpan:       # keys are borrowed from its list
    const char* start
    size_t start_len
    const char* stop
    size_t stop_len
    uint64_t seq
    uint64_t dead               # entries that scans passed in it, an estimate after a cut. With too many spans, the least goes

ctypedef struct SpanList:       # disjoint, in key order; one block of memory with the keys behind
    int refs
    int n
    DeadSpan items[1]

# The last span that starts at or before the key, if it covers it for a reader at `snapshot`; else NULL.
cdef const DeadSpan* spans_find(const SpanList* known, const char* key, size_t klen, uint64_t snapshot) noexcept nogil

ctypedef struct WriteMark:      # the end of the active memtable when a scan began
    ArenaChunk* chunk
    size_t offset
    uint64_t n_entries
    bint exact                  # no entry before it is newer than the scan: no large batch was being inserted

ctypedef struct DeadRun:        # dead entries in a row that a scan passes; embedded in it, zeroed at first
    WriteMark mark
    uint64_t budget             # writes after the mark that it may still look at
    SpanList* known             # owns a reference; NULL: there is none
    uint64_t snapshot
    uint64_t least              # entries that make a span
    uint64_t jumps
    int direction
    const char* origin          # where the fill began, borrowed; NULL: continued, or at the last key
    size_t origin_len
    bint origin_inclusive
    uint64_t n                  # entries of the run so far
    uint64_t spans              # jumped over in it
    int until_look              # entries until the next look for a span
    int items                   # of the chunk when the run began: another number ends the run
    GrowBuf near                # where it began: forward the start of its span, backward the stop
    GrowBuf far                 # the last key
    uint64_t longest            # worth of the longest run of this fill that makes a span; 0: there was none
    uint64_t dead               # its entries
    GrowBuf start               # its span
    GrowBuf stop

# When the scan begins, in the same step as its state and snapshot are taken. `m` is the active memtable.
cdef void run_attach(DeadRun* run, const MemC* m, uint64_t snapshot, DeadSpans spans) noexcept
# Passes a dead entry that has not expired, after `items` live ones. Returns a span to jump over, or NULL. Looks for one at the
# first entry, and now and then.
cdef const DeadSpan* run_pass(DeadRun* run, int items, const char* key, size_t klen) noexcept nogil
cdef void run_end(DeadRun* run) noexcept nogil          # something else than a dead entry, or the end of the fill
cdef void run_release(DeadRun* run) noexcept           # idempotent


cdef inline void run_begin(DeadRun* run, int direction, const char* origin, size_t n, bint inclusive) noexcept nogil:
    """Begins a fill."""
    run.direction = direction
    run.origin = origin
    run.origin_len = n
    run.origin_inclusive = inclusive
    run.n = 0
    run.spans = 0
    run.longest = 0


cdef inline void run_jump(DeadRun* run) noexcept nogil:
    """The scan jumps over a span, which belongs to the run."""
    run.jumps += 1
    run.spans += 1
    run.until_look = 0


cdef class DeadSpans:
    cdef SpanList* known        # owns a reference; NULL: there is none. Writers test this
    cdef const MemC* active     # takes the puts that cut the spans; NULL: nothing cuts them any more, so none is recorded
    cdef readonly uint64_t least
    cdef readonly uint64_t recorded
    cdef readonly uint64_t cuts

    cdef SpanList* pin(self) noexcept       # the caller releases it; may be NULL
    # The longest run of the last fill, found in a state whose active memtable is `m`.
    cdef void record_span(self, DeadRun* run, const MemC* m) noexcept
    cdef void cut(self, const char* key, size_t klen) noexcept          # a put of this key
    cdef void add_span(self, const DeadRun* run) noexcept
    cdef void cut_since(self, const WriteMark* mark) noexcept
    cdef void publish_spans(self, const DeadSpan* items, int n) noexcept
