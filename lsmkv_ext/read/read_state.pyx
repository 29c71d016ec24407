from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext.cache.block_cache cimport cache_drain
from lsmkv_ext.filter.curve cimport filter_designed_fpr
from lsmkv_ext.filter.kernel cimport FILTER_BLOCK_BYTES
from lsmkv_ext.memtable.memtable cimport Memtable
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.status cimport ST_CORRUPT, raise_status
from lsmkv_ext.table.table cimport Table
from lsmkv_ext.values.reader cimport ValueLogC

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** out, size_t alignment, size_t size)

cdef enum:
    MIN_SEEK_LIMIT = 1000
    BYTES_PER_SEEK = 16 << 10   # searching one more table costs about as much as merging this many bytes


cdef void read_state_drain(ReadStateC* v) noexcept nogil:
    if v.cache != NULL:
        cache_drain(v.cache)


cdef int raise_read(ReadState state, const Status* st, object path) except -1:
    if st.code == ST_CORRUPT:
        tables = [table for level in state.levels for table in level]
        value_logs = [log for each in (*tables, *state.memtables) for log in each.value_logs]
        for file in (*tables, *value_logs):
            if file.number == st.file_number:
                path = file.path
    return raise_status(st, path)


cdef class ReadState:
    """ReadState(memtables newest first, levels): levels[0] newest first, deeper ones sorted by key. `spans` are the dead spans of
    the state that it follows, or None."""

    def __cinit__(self, memtables, levels, uint64_t seed=0, DeadSpans spans=None):
        cdef Memtable memtable
        cdef Py_ssize_t i
        self.spans = DeadSpans() if spans is None else spans
        self.memtables = list(memtables)
        self.levels = [list(tables) for tables in levels]
        if len(self.levels) > MAX_LEVELS:
            raise ValueError(f"at most {MAX_LEVELS} levels")
        self.c.seed = seed
        self.c.bottom = -1
        self.c.seek_limit = MIN_SEEK_LIMIT
        self.c.n_memtables = len(self.memtables)
        self.c.memtables = <MemC**>malloc((len(self.memtables) + 1) * sizeof(MemC*))
        if self.c.memtables == NULL:
            raise MemoryError("read state")
        for i in range(len(self.memtables)):
            memtable = self.memtables[i]
            self.c.memtables[i] = memtable.c
        self.c.n_levels = len(self.levels)
        self.find_common_prefix()
        for i in range(len(self.levels)):
            self.add_level(i, self.levels[i])
        self.add_value_logs()

    cdef int find_common_prefix(self) except -1:
        """All keys lie between the smallest and the largest, so all share the prefix that these two share."""
        cdef Table table
        cdef TableC* low = NULL
        cdef TableC* high = NULL
        for tables in self.levels:
            for table in tables:
                if low == NULL or lsm_compare(table.c.smallest, table.c.smallest_len, low.smallest, low.smallest_len) < 0:
                    low = table.c
                if high == NULL or lsm_compare(table.c.largest, table.c.largest_len, high.largest, high.largest_len) > 0:
                    high = table.c
        if low == NULL:
            return 0
        self.c.common = low.smallest
        while (self.c.common_len < low.smallest_len and self.c.common_len < high.largest_len
               and low.smallest[self.c.common_len] == high.largest[self.c.common_len]):
            self.c.common_len += 1
        return 0

    cdef int add_level(self, int level, list tables) except -1:
        cdef Table table
        cdef Py_ssize_t i
        cdef void* slots = NULL
        cdef LevelC* out = &self.c.levels[level]
        cdef uint64_t l0_bytes = 0
        if posix_memalign(&slots, FILTER_BLOCK_BYTES, (len(tables) + 1) * sizeof(TableSlot)) != 0:
            raise MemoryError("read state")
        out.slots = <TableSlot*>slots
        out.last8 = <uint64_t*>malloc((len(tables) + 1) * sizeof(uint64_t))
        self.c.flat[level] = <TableC**>malloc((len(tables) + 1) * sizeof(TableC*))
        if out.last8 == NULL or self.c.flat[level] == NULL:
            raise MemoryError("read state")
        for i in range(len(tables)):
            table = tables[i]
            self.fill_slot(&out.slots[i], table.c)
            out.last8[i] = out.slots[i].last8
            self.c.flat[level][i] = table.c
            self.c.cache = table.c.cache
            if table.c.tombstones.n:
                self.c.table_tombstones = True
            if level == 0:
                l0_bytes += table.c.file_size
        out.n = len(tables)
        self.c.seek_limit += l0_bytes // BYTES_PER_SEEK
        if out.n:
            self.c.bottom = level
            if level:
                self.c.deep[self.c.n_deep] = level
                self.c.n_deep += 1
        return 0

    cdef int add_value_logs(self) except -1:
        """The tables hold the objects."""
        cdef ValueLog log
        cdef Table table
        cdef Py_ssize_t i
        cdef dict found = {}
        for tables in self.levels:
            for table in tables:
                for log in table.value_logs:
                    found[log.c.number] = log
        if not found:
            return 0
        self.c.value_logs = <ValueLogC**>malloc(len(found) * sizeof(ValueLogC*))
        if self.c.value_logs == NULL:
            raise MemoryError("read state")
        for i, number in enumerate(sorted(found)):
            log = found[number]
            self.c.value_logs[i] = log.c
        self.c.n_value_logs = len(found)
        return 0

    cdef void fill_slot(self, TableSlot* slot, TableC* t) noexcept:
        cdef size_t shared = self.c.common_len
        memset(slot, 0, sizeof(TableSlot))
        slot.t = t
        slot.first8 = lsm_prefix8(t.smallest + shared, t.smallest_len - shared)
        slot.last8 = lsm_prefix8(t.largest + shared, t.largest_len - shared)
        slot.foreign = t.seed != self.c.seed
        if t.filter.usable:
            slot.designed_fpr = filter_designed_fpr(&t.filter)
            if not slot.foreign:
                slot.bits = t.filter.bits
                slot.fuse = t.filter.fuse
                if slot.fuse.width:
                    self.c.fused = True
                else:
                    slot.n_blocks = t.filter.n_blocks
                    slot.k = t.filter.k

    def __dealloc__(self):
        cdef int i
        free(self.c.memtables)
        free(self.c.value_logs)
        for i in range(MAX_LEVELS):
            free(self.c.levels[i].slots)
            free(self.c.levels[i].last8)
            free(self.c.flat[i])
