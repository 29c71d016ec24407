from libc.stdlib cimport calloc, free
from libc.string cimport memset

from lsmkv_ext.filter.format cimport FILTER_ABSENT, filter_kind_text
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.status cimport ST_OK, Status, status_clear
from lsmkv_ext.port.wall_clock cimport Moment
from lsmkv_ext.read.counters cimport Counters
from lsmkv_ext.read.lookup cimport (
    ABSENT,
    DELETED,
    EXPIRED,
    FOUND,
    POINTED,
    RANGE_DELETED,
    Lookup,
    Trace,
    TraceStep,
    probe_memtables,
    probe_tables,
)
from lsmkv_ext.read.read_state cimport ReadStateC, raise_read
from lsmkv_ext.read.values cimport find_value
from lsmkv_ext.table.reader cimport ReadContext, TableC, table_unpin
from lsmkv_ext.values.format cimport ValuePointer

cdef dict RESULTS = {ABSENT: "absent", FOUND: "found", DELETED: "deleted", RANGE_DELETED: "range-deleted",
                     EXPIRED: "expired"}


cdef int count_sources(const ReadStateC* v) noexcept nogil:
    cdef int level
    cdef int n = v.n_memtables
    for level in range(v.n_levels):
        n += v.levels[level].n
    return n


cdef dict memtable_step(ReadState state, const TraceStep* step):
    return {"source": "memtable", "index": step.memtable, "log": state.memtables[step.memtable].number}


cdef dict table_step(const TraceStep* step):
    cdef TableC* t = step.table
    cdef dict out = {"source": "table", "level": step.level, "file": t.number, "block": None, "from": None, "bytes": 0}
    if t.filter.usable:
        out["filter"] = "maybe" if step.read else "no"
        out["filter_kind"] = filter_kind_text(&t.filter).decode()
        out["designed_fpr"] = step.designed_fpr
        if step.read and (step.answer == ABSENT or step.answer == RANGE_DELETED):
            out["false_positive"] = True
    else:
        out["filter"] = "none" if t.filter.problem == FILTER_ABSENT else "damaged"
    if step.read and step.block < t.n_blocks:
        out["block"] = step.block
        out["from"] = "cache" if step.cached else "disk"
        out["bytes"] = t.offsets[step.block + 1] - t.offsets[step.block]
    return out


cdef list step_dicts(ReadState state, const Trace* trace):
    cdef const TraceStep* step
    cdef dict out
    cdef list steps = []
    cdef int i
    for i in range(trace.n):
        step = &trace.steps[i]
        out = memtable_step(state, step) if step.level < 0 else table_step(step)
        out["result"] = RESULTS[step.answer]
        if step.answer != ABSENT:
            out["sequence"] = step.seq
        out["ns"] = step.ns
        steps.append(out)
    return steps


cdef dict value_place(ReadState state, const Lookup* q, object path):
    """Where the value is that the entry points to."""
    cdef ValuePointer p
    cdef Status st
    status_clear(&st)
    if find_value(&state.c, q.pointer, &p, &st) == NULL:
        raise_read(state, &st, path)
    return {"value_log": p.number, "offset": p.offset, "stored": p.stored, "size": p.raw}


cdef dict explain_lookup(HandleC* handle, ReadState state, uint64_t snapshot, uint64_t now, bytes key, object path):
    cdef ReadStateC* v = &state.c
    cdef Lookup q
    cdef Trace trace
    cdef Moment moment
    cdef ReadContext rc
    cdef Counters uncounted
    cdef Status st
    memset(&q, 0, sizeof(q))
    memset(&rc, 0, sizeof(rc))
    memset(&uncounted, 0, sizeof(uncounted))
    status_clear(&st)
    trace.n = 0
    trace.steps = <TraceStep*>calloc(count_sources(v) + 1, sizeof(TraceStep))
    if trace.steps == NULL:
        raise MemoryError("explain")
    try:
        q.key = key
        q.klen = len(key)
        q.hash = xxh3(q.key, q.klen, v.seed)
        q.snapshot = snapshot
        q.trace = &trace
        moment.clock = &handle.clock
        moment.now = now
        q.moment = &moment
        rc.gil_held = True
        rc.fill_cache = True
        if probe_memtables(v, &q, &uncounted) == ABSENT:
            handle.inflight += 1
            probe_tables(v, &q, &rc, &uncounted, &st)
            handle.inflight -= 1
        if q.pinned != NULL:
            table_unpin(q.owner, q.pinned)
        if st.code != ST_OK:
            raise_read(state, &st, path)
        out = {"key": key, "found": bool(q.found), "sequence": snapshot, "steps": step_dicts(state, &trace)}
        if q.found == POINTED:
            out["value"] = value_place(state, &q, path)
        return out
    finally:
        free(trace.steps)
