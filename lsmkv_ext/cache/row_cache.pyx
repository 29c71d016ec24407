from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** out, size_t alignment, size_t size)

cdef extern from "Python.h":
    void Py_INCREF(PyObject* o)

cdef enum:
    LINE = 64
    TYPICAL_ROW = 128           # bytes, to choose the number of row_cache: rather too many, as a full set turns keys away
    LARGEST_ROW = 1024
    FULL_CREDIT = 3
    TRIAL = 4096                # lookups
    REST = 3 * TRIAL
    PAYING = TRIAL // 50        # hits in a trial: a hit saves about as much as fifty lookups for nothing cost


cdef inline size_t weight(void* key, void* value) noexcept:
    """About what the two objects take, with their heads."""
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
    """After a trial that did not pay comes a rest, after a rest a trial."""
    r.bypassed = not r.bypassed and r.hits < PAYING
    r.left = REST if r.bypassed else TRIAL
    r.hits = 0


cdef void row_cache_free(RowCacheC* r) noexcept:
    cdef uint64_t i
    if r.row_cache != NULL:
        for i in range((r.set_mask + 1) * WAYS):
            drop(r, &r.row_cache[i])
    free(r.row_cache)
    r.row_cache = NULL
    r.used = 0
    r.limit = 0


cdef int row_cache_resize(RowCacheC* r, size_t limit) except -1:
    cdef uint64_t sets = 2
    cdef void* row_cache = NULL
    if limit == r.limit:
        return 0
    row_cache_free(r)
    if limit < 2 * TYPICAL_ROW * WAYS:
        return 0
    while sets * 2 * WAYS * TYPICAL_ROW <= limit:
        sets *= 2
    if posix_memalign(&row_cache, 2 * LINE, sets * LINE) != 0:
        raise MemoryError("row cache")
    memset(row_cache, 0, sets * LINE)
    r.row_cache = <Row*>row_cache
    r.set_mask = sets - 1
    r.used = sets * LINE
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


cdef Row* place_for(RowCacheC* r, uint64_t hash) noexcept:
    """The row of this hash, or one to begin it in, or NULL where all serve better keys; those of its own set lose some credit."""
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
    cdef Row* row = place_for(r, hash)
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
