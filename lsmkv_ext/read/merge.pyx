from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from lsmkv_ext.memtable.arena cimport MemEntry, entry_key, entry_kind, entry_klen, entry_value
from lsmkv_ext.memtable.order cimport run_first, run_last, run_next, run_prev, run_seek, run_seek_before
from lsmkv_ext.port.assertion cimport lsm_assert
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_store64
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.status cimport ST_OK, fail_memory
from lsmkv_ext.table.cold cimport table_is_cold, table_start_block
from lsmkv_ext.table.iterator cimport (
    table_iter_close,
    table_iter_init,
    table_iter_next,
    table_iter_prev,
    table_iter_seek,
    table_iter_seek_first,
    table_iter_seek_for_prev,
    table_iter_seek_last,
)
from lsmkv_ext.table.reader cimport TableC, table_ends_before, table_find_block


cdef int merge_init(MergeC* m, int capacity, ReadContext* rc, Status* st) noexcept nogil:
    memset(m, 0, sizeof(MergeC))
    m.rc = rc
    m.st = st
    m.capacity = capacity
    m.direction = 1
    m.sources = <Source*>calloc(capacity if capacity else 1, sizeof(Source))
    m.heap = <Source**>malloc((capacity if capacity else 1) * sizeof(Source*))
    if m.sources == NULL or m.heap == NULL:
        return fail_memory(st, b"merge")
    return ST_OK


cdef void merge_close(MergeC* m) noexcept nogil:
    cdef int i
    for i in range(m.n):
        table_iter_close(&m.sources[i].table)
    free(m.sources)
    free(m.heap)
    memset(m, 0, sizeof(MergeC))


cdef inline Source* next_source(MergeC* m, SourceKind kind) noexcept nogil:
    cdef Source* s = &m.sources[m.n]
    s.kind = kind
    s.rank = m.n
    s.at = -1
    m.n += 1
    return s


cdef void merge_add_order(MergeC* m, const MemOrder* order, uint64_t snapshot) noexcept nogil:
    cdef int i
    cdef Source* s
    for i in range(order.n_runs - 1, -1, -1):
        s = next_source(m, SOURCE_RUN)
        s.run.run = order.runs[i]
        s.run.snapshot = snapshot
        s.e = &s.local


cdef void merge_add_table(MergeC* m, TableC* t) noexcept nogil:
    cdef Source* s = next_source(m, SOURCE_TABLE)
    table_iter_init(&s.table, t, m.rc)
    s.e = &s.table.entry


cdef void merge_add_level(MergeC* m, TableC** tables, int n) noexcept nogil:
    cdef Source* s = next_source(m, SOURCE_LEVEL)
    s.tables = tables
    s.n_tables = n
    s.e = &s.table.entry


# --- one source ------------------------------------------------------------------------------------------------------

cdef inline void load_run_entry(Source* s) noexcept nogil:
    cdef MemEntry* e
    s.valid = s.run.valid
    if s.valid:
        e = s.run.run.items[s.run.pos].entry
        s.local.key = entry_key(e)
        s.local.klen = entry_klen(e)
        s.local.value = entry_value(e)
        s.local.vlen = e.vlen
        s.local.seq = e.seq
        s.local.kind = entry_kind(e)


cdef inline int load_table_entry(Source* s, int code, Status* st) noexcept nogil:
    s.valid = s.table.valid
    if code != ST_OK:
        s.valid = False
        st[0] = s.table.status
    return code


cdef int table_edge(TableIter* it, int direction) noexcept nogil:
    """Moves to the first entry, or backward to the last."""
    return table_iter_seek_first(it) if direction > 0 else table_iter_seek_last(it)


cdef void level_enter(Source* s, int i, MergeC* m) noexcept nogil:
    if s.at != i:
        table_iter_close(&s.table)
        table_iter_init(&s.table, s.tables[i], m.rc)
        s.at = i


cdef int level_step(Source* s, int code, MergeC* m) noexcept nogil:
    """After a move within a table: enters the next table where this one has ended."""
    cdef int i
    while code == ST_OK and not s.table.valid:
        i = s.at + m.direction
        if i < 0 or i >= s.n_tables:
            break
        level_enter(s, i, m)
        code = table_edge(&s.table, m.direction)
    return load_table_entry(s, code, m.st)


cdef int level_lower_bound(const Source* s, const char* key, size_t klen) noexcept nogil:
    """First table that may hold a key >= `key`."""
    cdef int lo = 0, hi = s.n_tables, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if table_ends_before(s.tables[mid], key, klen):
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef int source_edge(Source* s, MergeC* m) noexcept nogil:
    """Moves to the first entry, or backward to the last."""
    if s.kind == SOURCE_RUN:
        if m.direction > 0:
            run_first(&s.run)
        else:
            run_last(&s.run)
        load_run_entry(s)
        return ST_OK
    if s.kind == SOURCE_LEVEL:
        s.valid = False
        if s.n_tables == 0:
            return ST_OK
        level_enter(s, 0 if m.direction > 0 else s.n_tables - 1, m)
    cdef int code = table_edge(&s.table, m.direction)
    return level_step(s, code, m) if s.kind == SOURCE_LEVEL else load_table_entry(s, code, m.st)


cdef int source_seek(Source* s, const char* key, size_t klen, MergeC* m) noexcept nogil:
    cdef int i
    if s.kind == SOURCE_RUN:
        run_seek(&s.run, key, klen)
        load_run_entry(s)
        return ST_OK
    if s.kind == SOURCE_LEVEL:
        i = level_lower_bound(s, key, klen)
        s.valid = False
        if i == s.n_tables:
            return ST_OK
        level_enter(s, i, m)
        return level_step(s, table_iter_seek(&s.table, key, klen), m)
    return load_table_entry(s, table_iter_seek(&s.table, key, klen), m.st)


cdef int source_seek_before(Source* s, const char* key, size_t klen, bint inclusive, MergeC* m) noexcept nogil:
    cdef int i
    if s.kind == SOURCE_RUN:
        if inclusive:
            run_seek(&s.run, key, klen)
            load_run_entry(s)
            if s.valid and lsm_compare(s.e.key, s.e.klen, key, klen) == 0:
                return ST_OK
        run_seek_before(&s.run, key, klen)
        load_run_entry(s)
        return ST_OK
    if s.kind == SOURCE_LEVEL:
        i = level_lower_bound(s, key, klen)
        s.valid = False
        if i == s.n_tables:
            i = s.n_tables - 1
        if i < 0:
            return ST_OK
        level_enter(s, i, m)
        return level_step(s, table_iter_seek_for_prev(&s.table, key, klen, inclusive), m)
    return load_table_entry(s, table_iter_seek_for_prev(&s.table, key, klen, inclusive), m.st)


cdef inline int source_advance(Source* s, MergeC* m) noexcept nogil:
    cdef int code
    if s.kind == SOURCE_RUN:
        if m.direction > 0:
            run_next(&s.run)
        else:
            run_prev(&s.run)
        load_run_entry(s)
        return ST_OK
    code = table_iter_next(&s.table) if m.direction > 0 else table_iter_prev(&s.table)
    if s.kind == SOURCE_LEVEL and not s.table.valid:
        return level_step(s, code, m)
    return load_table_entry(s, code, m.st)


# --- skipping in one source ------------------------------------------------------------------------------------------

cdef inline bint before_bound(const TableC* t, const char* bound, size_t blen, int direction) noexcept nogil:
    """Whether the merge meets all entries of the table before `bound`."""
    if direction > 0:
        return table_ends_before(t, bound, blen)
    return lsm_compare(t.smallest, t.smallest_len, bound, blen) >= 0


cdef bint is_older(const Source* s, uint64_t seq) noexcept nogil:
    """Whether every entry of the run, or of the table that the source is on, is older than `seq`."""
    if s.kind == SOURCE_RUN:
        return s.run.run.max_seq < seq
    return s.table.t.max_seq < seq


cdef int table_seek_past(TableIter* it, const char* bound, size_t blen, int direction) noexcept nogil:
    """Moves to the first entry that is not before `bound`."""
    return table_iter_seek(it, bound, blen) if direction > 0 else table_iter_seek_for_prev(it, bound, blen, False)


cdef int run_skip(Source* s, const char* bound, size_t blen, MergeC* m) noexcept nogil:
    if m.direction > 0:
        run_seek(&s.run, bound, blen)
    else:
        run_seek_before(&s.run, bound, blen)
    load_run_entry(s)
    return ST_OK


cdef int table_skip(Source* s, const char* bound, size_t blen, MergeC* m) noexcept nogil:
    if before_bound(s.table.t, bound, blen, m.direction):
        s.valid = False
        return ST_OK
    return load_table_entry(s, table_seek_past(&s.table, bound, blen, m.direction), m.st)


cdef int level_skip(Source* s, const char* bound, size_t blen, uint64_t seq, MergeC* m) noexcept nogil:
    cdef int i = s.at, code
    while 0 <= i < s.n_tables and s.tables[i].max_seq < seq and before_bound(s.tables[i], bound, blen, m.direction):
        i += m.direction
    s.valid = False
    if i < 0 or i >= s.n_tables:
        return ST_OK
    level_enter(s, i, m)
    if s.tables[i].max_seq < seq:
        code = table_seek_past(&s.table, bound, blen, m.direction)
    else:
        code = table_edge(&s.table, m.direction)
    return level_step(s, code, m)


cdef int source_skip(Source* s, const char* bound, size_t blen, uint64_t seq, MergeC* m) noexcept nogil:
    if s.kind == SOURCE_RUN:
        return run_skip(s, bound, blen, m)
    if s.kind == SOURCE_TABLE:
        return table_skip(s, bound, blen, m)
    return level_skip(s, bound, blen, seq, m)


# --- the heap --------------------------------------------------------------------------------------------------------

cdef inline int compare_keys(const MergeC* m, const Source* a, const Source* b) noexcept nogil:
    """Negative: a comes before b in the direction of the merge; 0: same key."""
    return m.direction * lsm_compare(a.e.key, a.e.klen, b.e.key, b.e.klen)


cdef inline bint newer(const MergeC* m, const Source* a, const Source* b) noexcept nogil:
    if m.by_seq and a.e.seq != b.e.seq:
        return a.e.seq > b.e.seq
    return a.rank < b.rank


cdef inline bint before(const MergeC* m, const Source* a, const Source* b) noexcept nogil:
    cdef int r = compare_keys(m, a, b)
    return r < 0 or (r == 0 and newer(m, a, b))


cdef bint heap_ordered(const MergeC* m) noexcept nogil:
    """Every source is valid and not before its parent; the runner-up is the second in order."""
    cdef int i
    for i in range(m.n_heap):
        if not m.heap[i].valid or (i and before(m, m.heap[i], m.heap[(i - 1) // 2])):
            return False
        if i and i != m.runner_up and before(m, m.heap[i], m.heap[m.runner_up]):
            return False
    return m.tie == (m.n_heap > 1 and compare_keys(m, m.heap[0], m.heap[m.runner_up]) == 0)


cdef void sift_down(MergeC* m, int i) noexcept nogil:
    cdef Source* s = m.heap[i]
    cdef int child
    while True:
        child = 2 * i + 1
        if child >= m.n_heap:
            break
        if child + 1 < m.n_heap and before(m, m.heap[child + 1], m.heap[child]):
            child += 1
        if not before(m, m.heap[child], s):
            break
        m.heap[i] = m.heap[child]
        i = child
    m.heap[i] = s


cdef inline void remove_at(MergeC* m, int i) noexcept nogil:
    m.n_heap -= 1
    if i < m.n_heap:
        m.heap[i] = m.heap[m.n_heap]
        sift_down(m, i)


cdef inline void find_runner_up(MergeC* m) noexcept nogil:
    """Finds the source that follows the top, and whether both are on the same key."""
    m.tie = False
    m.runner_up = 0
    if m.n_heap < 2:
        return
    m.runner_up = 1
    if m.n_heap > 2 and before(m, m.heap[2], m.heap[1]):
        m.runner_up = 2
    m.tie = compare_keys(m, m.heap[0], m.heap[m.runner_up]) == 0


cdef int build_heap(MergeC* m) noexcept nogil:
    cdef int i
    m.n_heap = 0
    for i in range(m.n):
        if m.sources[i].valid:
            m.heap[m.n_heap] = &m.sources[i]
            m.n_heap += 1
    for i in range(m.n_heap // 2 - 1, -1, -1):
        sift_down(m, i)
    find_runner_up(m)
    lsm_assert(heap_ordered(m))
    return ST_OK


cdef int fail(MergeC* m) noexcept nogil:
    m.n_heap = 0
    return m.st.code


cdef int seek_edge(MergeC* m, int direction) noexcept nogil:
    cdef int i
    m.direction = direction
    for i in range(m.n):
        if source_edge(&m.sources[i], m) != ST_OK:
            return fail(m)
    return build_heap(m)


cdef void start_reads(MergeC* m, const char* key, size_t klen) noexcept nogil:
    """Starts reading the block of the key in every source: a seek reads them one after the other."""
    cdef Source* s
    cdef TableC* t
    cdef int i, at
    for i in range(m.n):
        s = &m.sources[i]
        if s.kind == SOURCE_RUN:
            continue
        t = s.tables[0] if s.kind == SOURCE_LEVEL else s.table.t
        if not table_is_cold(t):
            return
        if s.kind == SOURCE_LEVEL:
            at = level_lower_bound(s, key, klen)
            if at == s.n_tables:
                continue
            t = s.tables[at]
        table_start_block(t, table_find_block(t, key, klen))


cdef int merge_first(MergeC* m) noexcept nogil:
    return seek_edge(m, 1)


cdef int merge_last(MergeC* m) noexcept nogil:
    return seek_edge(m, -1)


cdef int merge_seek(MergeC* m, const char* key, size_t klen) noexcept nogil:
    cdef int i
    m.direction = 1
    if m.n > 1:
        start_reads(m, key, klen)
    for i in range(m.n):
        if source_seek(&m.sources[i], key, klen, m) != ST_OK:
            return fail(m)
    return build_heap(m)


cdef int merge_seek_before(MergeC* m, const char* key, size_t klen, bint inclusive) noexcept nogil:
    cdef int i
    m.direction = -1
    if m.n > 1:
        start_reads(m, key, klen)
    for i in range(m.n):
        if source_seek_before(&m.sources[i], key, klen, inclusive, m) != ST_OK:
            return fail(m)
    return build_heap(m)


cdef int drop_ties(MergeC* m) noexcept nogil:
    """Moves every older source past the key of the top."""
    cdef Source* s
    while m.tie:
        s = m.heap[m.runner_up]
        if source_advance(s, m) != ST_OK:
            return fail(m)
        if s.valid:
            sift_down(m, m.runner_up)
        else:
            remove_at(m, m.runner_up)
        find_runner_up(m)
    return ST_OK


cdef int merge_next(MergeC* m) noexcept nogil:
    cdef Source* top
    cdef int r
    # Older sources first: they are compared with the key of the top, which is gone once the top moves.
    lsm_assert(heap_ordered(m))
    if m.tie and drop_ties(m) != ST_OK:
        return m.st.code
    top = m.heap[0]
    if source_advance(top, m) != ST_OK:
        return fail(m)
    if not top.valid:
        remove_at(m, 0)
        find_runner_up(m)
        return ST_OK
    if m.runner_up == 0:
        return ST_OK
    # The same source often stays on top: then one comparison with the runner-up is enough.
    r = compare_keys(m, top, m.heap[m.runner_up])
    if r < 0:
        return ST_OK
    if r == 0 and newer(m, top, m.heap[m.runner_up]):
        m.tie = True
        return ST_OK
    sift_down(m, 0)
    find_runner_up(m)
    return ST_OK


cdef void merge_count_dead(MergeC* m) noexcept nogil:
    cdef Source* s = m.heap[0]
    if s.kind != SOURCE_RUN:
        m.dead += 1
        lsm_store64(&s.table.t.dead_passed, lsm_load64(&s.table.t.dead_passed) + 1)


cdef int merge_skip_to(MergeC* m, const char* bound, size_t blen, uint64_t seq) noexcept nogil:
    cdef Source* s
    cdef int i
    cdef bint moved = False
    for i in range(m.n_heap):
        s = m.heap[i]
        if is_older(s, seq) and (lsm_compare(s.e.key, s.e.klen, bound, blen) < 0) == (m.direction > 0):
            moved = True
            if source_skip(s, bound, blen, seq, m) != ST_OK:
                return fail(m)
    return build_heap(m) if moved else ST_OK
