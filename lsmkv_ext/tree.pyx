from lsmkv_ext.memtable.memtable cimport mem_delete_range
from lsmkv_ext.read.counters cimport counters_dict

from lsmkv_ext.errors import KeyspaceError

cdef list EMPTY = []        # never changed
cdef enum:
    KEPT_LIMIT = 64 << 20   # bytes of flushed memtables that a tree keeps for transactions


cdef int refuse_dropped() except -1:
    raise KeyspaceError("the keyspace was dropped")


cdef class Tree:
    """The memtables and levels of one keyspace."""

    def __cinit__(self, str path, uint64_t seed, uint32_t keyspace=0, RowCache row_cache=None):
        self.row_cache = RowCache() if row_cache is None else row_cache
        self.path = path
        self.seed = seed
        self.keyspace = keyspace
        self.kept = EMPTY
        self.large_value = <uint64_t>-1
        self.row_salt = keyspace * <uint64_t>0x9E3779B97F4A7C15

    cdef int next_generation(self) noexcept:
        self.row_cache.generations += 1
        self.generation = self.row_cache.generations
        return 0

    cdef int take_spans(self) noexcept:
        if self.spans is not None:
            self.spans.active = NULL
        self.spans = self.state.spans
        self.spans.active = self.active.c
        return 0

    cdef int install(self, ReadState state) except -1:
        self.active = state.memtables[0]
        self.state = state
        self.seed = state.c.seed
        self.take_spans()
        self.next_generation()
        return 0

    cdef int prepare(self, object levels, object drop) except -1:
        kept = [memtable for memtable in self.state.memtables if memtable not in drop]
        self.next_state = ReadState(kept, levels, self.seed, self.spans)
        return 0

    cdef int keep_flushed(self, object drop, uint64_t oldest) except -1:
        cdef Memtable memtable
        cdef uint64_t room = KEPT_LIMIT
        cdef list kept = []
        self.next_forgotten = self.forgotten
        for memtable in [memtable for memtable in self.state.memtables if memtable in drop] + self.kept:
            if memtable.c.max_seq <= oldest or memtable.c.used > room:
                self.next_forgotten = max(self.next_forgotten, memtable.c.max_seq)
            else:
                room -= memtable.c.used
                kept.append(memtable)
        self.next_kept = kept
        return 0

    cdef int keep_ingested(self, object levels, uint64_t seq) except -1:
        cdef Memtable memtable = Memtable(self.seed, 4096, small=True)
        cdef bytes start, stop
        for table in [table for tables in levels for table in tables if table.global_seq == seq]:
            start = table.smallest
            stop = table.largest if table.largest_exclusive else table.largest + b"\0"
            if mem_delete_range(memtable.c, start, len(start), stop, len(stop), seq) != 0:
                raise MemoryError("ingest")
        self.next_kept.insert(0, memtable)
        return 0

    cdef int forget_kept(self) noexcept:
        cdef Memtable memtable
        for memtable in self.kept:
            self.forgotten = max(self.forgotten, memtable.c.max_seq)
        self.kept = EMPTY
        return 0

    cdef int publish(self) noexcept:
        cdef ReadState old = self.state
        self.state = self.next_state
        self.next_state = old
        self.take_spans()
        if self.next_kept is not None:
            self.kept = self.next_kept
            self.next_kept = None
        self.forgotten = max(self.forgotten, self.next_forgotten)
        self.next_generation()
        return 0

    cdef int discard(self) noexcept:
        self.next_state = None
        self.next_kept = None
        return 0

    cdef int stage_rotation(self, Memtable memtable) except -1:
        self.rotated_state = ReadState([memtable, *self.state.memtables], self.state.levels, self.seed, self.spans)
        self.rotated_next_state = None
        if self.next_state is not None:
            self.rotated_next_state = ReadState([memtable, *self.next_state.memtables], self.next_state.levels, self.seed,
                                                self.next_state.spans)
        self.rotated = memtable
        return 0

    cdef int unstage_rotation(self) noexcept:
        self.rotated = None
        self.rotated_state = None
        self.rotated_next_state = None
        return 0

    cdef int rotate(self) noexcept:
        cdef ReadState _held = self.state
        self.rotated_state.c.seek_debt = self.state.c.seek_debt
        self.rotated_state.c.dead_debt = self.state.c.dead_debt
        self.state = self.rotated_state
        self.next_state = self.rotated_next_state
        self.active = self.rotated
        self.take_spans()
        return self.unstage_rotation()

    cdef int close(self) noexcept:
        self.next_generation()      # a lookup without the GIL may still offer a row
        self.state = None
        self.active = None
        self.next_state = None
        self.kept = EMPTY
        self.next_kept = None
        return 0

    cpdef dict counters(self):
        cdef dict out = counters_dict(&self.lookups)
        out["row_bytes"] = self.row_cache.c.used
        out["dead_spans"] = 0 if self.spans is None or self.spans.known == NULL else self.spans.known.n
        return out

    def set_shadow_period(self, uint64_t period):
        """Every `period`-th lookup also checks the tables that their filters ruled out; 0: none does."""
        self.lookups.shadow_period = period
