from lsmkv_ext.cache.row_cache cimport row_cache_free
from lsmkv_ext.read.counters cimport counters_dict


cdef class Tree:
    """The memtables and levels of one keyspace."""

    def __cinit__(self, str path, uint64_t seed):
        self.path = path
        self.seed = seed

    def __dealloc__(self):
        row_cache_free(&self.row_cache)

    cdef int install(self, ReadState state) except -1:
        """Replaces the state at open and refresh. After a refresh it may be the state of another database at the same path."""
        self.active = state.memtables[0]
        self.state = state
        self.seed = state.c.seed
        self.generation += 1
        return 0

    cdef int prepare(self, object levels, object drop) except -1:
        """Makes the state that `publish` will install: `levels`, and the memtables without those in `drop`."""
        kept = [memtable for memtable in self.state.memtables if memtable not in drop]
        self.next_state = ReadState(kept, levels, self.seed)
        return 0

    cdef int publish(self) noexcept:
        self.state = self.next_state
        self.next_state = None
        self.generation += 1
        return 0

    cdef int discard(self) noexcept:
        self.next_state = None
        return 0

    cdef int rotate(self, Memtable memtable) except -1:
        cdef ReadState _held = self.state
        cdef ReadState state = ReadState([memtable, *self.state.memtables], self.state.levels, self.seed)
        cdef ReadState next_state = None
        if self.next_state is not None:
            next_state = ReadState([memtable, *self.next_state.memtables], self.next_state.levels, self.seed)
        # Nothing fails from here on.
        state.c.seek_debt = self.state.c.seek_debt
        self.state = state
        self.next_state = next_state
        self.active = memtable
        return 0

    cdef int close(self) noexcept:
        row_cache_free(&self.row_cache)
        self.state = None
        self.active = None
        self.next_state = None
        return 0

    cdef dict counters_by_name(self):
        cdef dict out = counters_dict(&self.counters)
        out["row_bytes"] = self.row_cache.used
        return out
