# Builds Arrow arrays of byte strings, row by row.
#
#     column_begin(&b, wide, rows, bytes)      zeroed before, or finished
#     column_append(&b, p, n)                  if column_has_room(&b, n)
#     column_finish(&b, &array)                the array owns the buffers from then on
#
# A builder owns its buffers until then; column_free is idempotent. Functions that return an int return 0, or -1 if out of
# memory: then the builder is as before.
#
# The buffers come from malloc: those of a batch that the consumer has released serve the next one.

from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from lsmkv_ext.arrow.abi cimport ArrowArray

ctypedef struct ColumnBuilder:
    bint wide                   # offsets of 8 bytes: the data may exceed 2 GiB
    int64_t rows
    int64_t nulls
    int64_t row_capacity
    void* offsets               # owned: row_capacity + 1; the first is 0
    uint8_t* validity           # owned; NULL: no nulls so far. Zero past `rows`
    char* data                  # owned
    size_t used
    size_t capacity

cdef int column_begin(ColumnBuilder* b, bint wide, int64_t rows, size_t bytes) noexcept nogil
cdef void column_free(ColumnBuilder* b) noexcept nogil
cdef int column_grow_rows(ColumnBuilder* b, int64_t more) noexcept nogil
cdef int column_grow_data(ColumnBuilder* b, size_t more) noexcept nogil
cdef int column_append_null(ColumnBuilder* b) noexcept nogil
cdef int column_finish(ColumnBuilder* b, ArrowArray* out) noexcept nogil
# A struct array of the columns, which have the same number of rows. The columns are finished, or all as before.
cdef int table_finish(ColumnBuilder* columns, int n, ArrowArray* out) noexcept nogil
# Another array on the buffers of one that column_finish made. They are freed with the last one, in any thread.
cdef void column_share(const ArrowArray* array, ArrowArray* out) noexcept nogil


cdef inline bint column_has_room(const ColumnBuilder* b, size_t n) noexcept nogil:
    """Whether the offsets can count n more bytes."""
    return n <= <size_t>(INT64_MAX if b.wide else INT32_MAX) - b.used


cdef inline char* column_add(ColumnBuilder* b, size_t n) noexcept nogil:
    """Appends a row of n bytes, which the caller fills. NULL if out of memory."""
    cdef char* p
    if b.rows == b.row_capacity and column_grow_rows(b, 1) != 0:
        return NULL
    if b.capacity - b.used < n and column_grow_data(b, n) != 0:
        return NULL
    p = b.data + b.used
    if b.validity != NULL:
        b.validity[b.rows >> 3] |= <uint8_t>(1 << (b.rows & 7))
    b.used += n
    b.rows += 1
    if b.wide:
        (<int64_t*>b.offsets)[b.rows] = <int64_t>b.used
    else:
        (<int32_t*>b.offsets)[b.rows] = <int32_t>b.used
    return p


cdef inline int column_append(ColumnBuilder* b, const char* p, size_t n) noexcept nogil:
    cdef char* place = column_add(b, n)
    if place == NULL:
        return -1
    memcpy(place, p, n)
    return 0
