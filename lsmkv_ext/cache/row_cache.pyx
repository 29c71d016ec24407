"""The row cache."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_XDECREF, PyObject
from libc.string cimport memcmp

from lsmkv_ext.port.pages cimport CACHE_LINE, lsm_lines_alloc, lsm_pages_free

cdef extern from "Python.h":
    void Py_INCREF(PyObject* o)

cdef enum:
    TYPICAL_ROW = 128           # bytes; a low guess makes more rows, because a full set turns keys away
    LARGEST_ROW = 1024
    FULL_CREDIT = 3
    TRIAL = 4096                # lookups
    BYPASS = 3 * TRIAL          # lookups
    WORTH_IT = TRIAL // 50      # hits in a trial: a hit saves about what fifty misses cost


cdef inline size_t weight(void* key, void* value) noexcept:
    """Approximate bytes of the two objects, with their headers."""
    return PyBytes_GET_SIZE(<object>key) + PyBytes_GET_SIZE(<object>value) + 2 * 48


cdef void drop(RowCacheC* r, Row* row) noexcept:
    cdef void* key = row.key
    cdef void* value = row.value
    row.key = NULL
    row.value = NULL
    if key != NULL:
        r.used -= weight(key, value)
        Py_XDECREF(<PyObject*>key)
        Py_XDECREF(<PyObject*>value)


cdef void row_cache_decide(RowCacheC* r) noexcept:
    """A trial with too few hits is followed by a bypass, a bypass by a trial."""
    r.bypassed = not r.bypassed and r.hits < WORTH_IT
    r.left = BYPASS if r.bypassed else TRIAL
    r.hits = 0


cdef void row_cache_free(RowCacheC* r) noexcept:
    cdef uint64_t i
    if r.sets != NULL:
        for i in range((r.set_mask + 1) * WAYS):
            drop(r, &r.sets[i])
        lsm_pages_free(r.sets, (r.set_mask + 1) * CACHE_LINE)
    r.sets = NULL
    r.used = 0
    r.limit = 0


cdef int row_cache_resize(RowCacheC* r, size_t limit) except -1:
    cdef uint64_t sets = 2
    if limit == r.limit:
        return 0
    row_cache_free(r)
    if limit < 2 * TYPICAL_ROW * WAYS:
        return 0
    while sets * 2 * WAYS * TYPICAL_ROW <= limit:
        sets *= 2
    r.sets = <Row*>lsm_lines_alloc(sets * CACHE_LINE)
    if r.sets == NULL:
        raise MemoryError("row cache")
    r.set_mask = sets - 1
    r.used = sets * CACHE_LINE
    r.limit = limit
    r.bypassed = False
    r.hits = 0
    r.left = TRIAL
    return 0


cdef void* row_cache_find(RowCacheC* r, uint64_t hash, const char* key, size_t klen, uint32_t generation) noexcept:
    cdef Row* row
    cdef int i, side
    for side in range(2):
        row = row_cache_set(r, hash, side)
        for i in range(WAYS):
            if row[i].hash == hash and row[i].value != NULL and row[i].generation == generation:
                if (<size_t>PyBytes_GET_SIZE(<object>row[i].key) == klen
                        and memcmp(PyBytes_AS_STRING(<object>row[i].key), key, klen) == 0):
                    if row[i].credit != FULL_CREDIT:
                        row[i].credit = FULL_CREDIT
                    r.hits += 1
                    return row[i].value
    return NULL


cdef Row* row_for(RowCacheC* r, uint64_t hash) noexcept:
    """The row of this hash, or a row without credit, or NULL; then each row of its own set loses one credit."""
    cdef Row* row
    cdef int i, side
    for side in range(2):
        row = row_cache_set(r, hash, side)
        for i in range(WAYS):
            if row[i].hash == hash:
                return &row[i]
    for side in range(2):
        row = row_cache_set(r, hash, side)
        for i in range(WAYS):
            if row[i].credit == 0:
                return &row[i]
    row = row_cache_set(r, hash, 0)
    for i in range(WAYS):
        row[i].credit -= 1
    return NULL


cdef int row_cache_offer(RowCacheC* r, uint64_t hash, bytes key, bytes value, uint32_t generation) noexcept:
    cdef Row* row = row_for(r, hash)
    cdef size_t n
    if row == NULL:
        return 0
    n = weight(<void*>key, <void*>value)
    drop(r, row)
    if row.hash != hash:
        row.hash = hash
        row.credit = 1
    elif n <= LARGEST_ROW and r.used + n <= r.limit:
        Py_INCREF(<PyObject*>key)
        Py_INCREF(<PyObject*>value)
        row.key = <void*>key
        row.value = <void*>value
        row.generation = generation
        r.used += n
    return 0


cdef class RowCache:
    """The row cache of a database. Its trees share it."""

    def __dealloc__(self):
        row_cache_free(&self.c)
