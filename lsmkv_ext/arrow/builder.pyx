"""Builds Arrow arrays of byte strings."""

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from lsmkv_ext.port.atomics cimport lsm_fetch_add32

cdef enum:
    MAX_COLUMNS = 2

ctypedef struct SharedBuffers:      # of an array and of those that share them
    int refs                        # atomic
    const void* buffers[3]

ctypedef struct TableBuffers:
    const void* buffers[1]
    ArrowArray* pointers[MAX_COLUMNS]
    ArrowArray children[MAX_COLUMNS]


# --- rows ------------------------------------------------------------------------------------------------------------

cdef inline size_t _offset_size(const ColumnBuilder* b) noexcept nogil:
    return 8 if b.wide else 4


cdef inline size_t _bitmap_size(int64_t rows) noexcept nogil:
    return <size_t>((rows + 7) >> 3)


cdef int column_begin(ColumnBuilder* b, bint wide, int64_t rows, size_t bytes) noexcept nogil:
    memset(b, 0, sizeof(ColumnBuilder))
    b.wide = wide
    b.row_capacity = max(rows, <int64_t>1)
    b.capacity = max(bytes, <size_t>1)
    b.offsets = malloc((b.row_capacity + 1) * _offset_size(b))
    b.data = <char*>malloc(b.capacity)
    if b.offsets == NULL or b.data == NULL:
        column_free(b)
        return -1
    memset(b.offsets, 0, _offset_size(b))
    return 0


cdef void column_free(ColumnBuilder* b) noexcept nogil:
    free(b.offsets)
    free(b.validity)
    free(b.data)
    memset(b, 0, sizeof(ColumnBuilder))


cdef int _grow_validity(ColumnBuilder* b, int64_t capacity) noexcept nogil:
    cdef size_t before = _bitmap_size(b.row_capacity)
    cdef uint8_t* grown = <uint8_t*>realloc(b.validity, _bitmap_size(capacity))
    if grown == NULL:
        return -1
    memset(grown + before, 0, _bitmap_size(capacity) - before)
    b.validity = grown
    return 0


cdef int column_grow_rows(ColumnBuilder* b, int64_t more) noexcept nogil:
    cdef int64_t capacity = b.row_capacity + max(b.row_capacity, more)
    cdef void* offsets = realloc(b.offsets, (capacity + 1) * _offset_size(b))
    if offsets == NULL:
        return -1
    b.offsets = offsets
    if b.validity != NULL and _grow_validity(b, capacity) != 0:
        return -1
    b.row_capacity = capacity
    return 0


cdef int column_grow_data(ColumnBuilder* b, size_t more) noexcept nogil:
    cdef size_t capacity = b.capacity + max(b.capacity, more)
    cdef char* data = <char*>realloc(b.data, capacity)
    if data == NULL:
        return -1
    b.data = data
    b.capacity = capacity
    return 0


cdef int _begin_validity(ColumnBuilder* b) noexcept nogil:
    cdef size_t whole = <size_t>(b.rows >> 3)
    b.validity = <uint8_t*>calloc(1, _bitmap_size(b.row_capacity))
    if b.validity == NULL:
        return -1
    memset(b.validity, 0xFF, whole)
    if b.rows & 7:
        b.validity[whole] = <uint8_t>((1 << (b.rows & 7)) - 1)
    return 0


cdef int column_append_null(ColumnBuilder* b) noexcept nogil:
    if b.validity == NULL and _begin_validity(b) != 0:
        return -1
    if column_add(b, 0) == NULL:
        return -1
    b.validity[(b.rows - 1) >> 3] &= <uint8_t>~(1 << ((b.rows - 1) & 7))
    b.nulls += 1
    return 0


# --- arrays ----------------------------------------------------------------------------------------------------------

cdef void _release_column(ArrowArray* array) noexcept nogil:
    cdef SharedBuffers* shared = <SharedBuffers*>array.private_data
    cdef int i
    array.release = NULL
    if lsm_fetch_add32(&shared.refs, -1) > 1:
        return
    for i in range(3):
        free(<void*>shared.buffers[i])
    free(shared)


cdef void _release_table(ArrowArray* array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        # The consumer may have moved it out.
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    array.release = NULL
    free(array.private_data)


cdef SharedBuffers* _new_shared() noexcept nogil:
    cdef SharedBuffers* shared = <SharedBuffers*>calloc(1, sizeof(SharedBuffers))
    if shared != NULL:
        shared.refs = 1
    return shared


cdef inline void _trim(ColumnBuilder* b) noexcept nogil:
    """Gives back what a consumer that keeps the array would waste."""
    cdef char* data
    if b.capacity - b.used > b.used // 4 + 4096:
        data = <char*>realloc(b.data, max(b.used, <size_t>1))
        if data != NULL:
            b.data = data


cdef void _finish_into(ColumnBuilder* b, SharedBuffers* shared, ArrowArray* out) noexcept nogil:
    _trim(b)
    shared.buffers[0] = b.validity
    shared.buffers[1] = b.offsets
    shared.buffers[2] = b.data
    memset(out, 0, sizeof(ArrowArray))
    out.length = b.rows
    out.null_count = b.nulls
    out.n_buffers = 3
    out.buffers = shared.buffers
    out.private_data = shared
    out.release = _release_column
    memset(b, 0, sizeof(ColumnBuilder))


cdef int column_finish(ColumnBuilder* b, ArrowArray* out) noexcept nogil:
    cdef SharedBuffers* shared = _new_shared()
    if shared == NULL:
        return -1
    _finish_into(b, shared, out)
    return 0


cdef void column_share(const ArrowArray* array, ArrowArray* out) noexcept nogil:
    lsm_fetch_add32(&(<SharedBuffers*>array.private_data).refs, 1)
    out[0] = array[0]


cdef int table_finish(ColumnBuilder* columns, int n, ArrowArray* out) noexcept nogil:
    cdef TableBuffers* table = <TableBuffers*>calloc(1, sizeof(TableBuffers))
    cdef SharedBuffers* shared[MAX_COLUMNS]
    cdef bint failed = table == NULL
    cdef int64_t rows = columns[0].rows
    cdef int i
    for i in range(n):
        shared[i] = _new_shared()
        failed |= shared[i] == NULL
    if failed:
        for i in range(n):
            free(shared[i])
        free(table)
        return -1
    for i in range(n):
        _finish_into(&columns[i], shared[i], &table.children[i])
        table.pointers[i] = &table.children[i]
    memset(out, 0, sizeof(ArrowArray))
    out.length = rows
    out.n_buffers = 1
    out.n_children = n
    out.buffers = table.buffers
    out.children = table.pointers
    out.private_data = table
    out.release = _release_table
    return 0
