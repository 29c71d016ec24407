"""Columns of byte strings in Arrow arrays and numpy buffers."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, strcmp, strncmp

cdef extern from "Python.h" nogil:
    ctypedef struct PyObject
    # Of an immutable object, so neither needs the GIL.
    char* PyBytes_AS_STRING(PyObject* o) noexcept
    Py_ssize_t PyBytes_GET_SIZE(PyObject* o) noexcept

cdef const char* _NOTHING = ""

cdef enum:
    VIEW_BYTES = 16
    VIEW_INLINE = 12              # a view holds so many bytes itself


# --- rows ------------------------------------------------------------------------------------------------------------

cdef inline bint _is_null(const ColumnC* c, int64_t i) noexcept nogil:
    return c.validity != NULL and not (c.validity[i >> 3] >> (i & 7)) & 1


cdef inline size_t _unpadded(const char* p, int64_t n) noexcept nogil:
    while n and p[n - 1] == 0:
        n -= 1
    return <size_t>n


cdef inline int _offset_row(const ColumnC* c, int64_t at, int64_t end, const char** p, size_t* n) noexcept nogil:
    if at < 0 or end < at or end > c.data_size:
        return ROWS_OFFSETS
    p[0] = c.data + at
    n[0] = <size_t>(end - at)
    return ROWS_OK


cdef inline int _view_row(const ColumnC* c, int64_t i, const char** p, size_t* n) noexcept nogil:
    cdef const char* view = <const char*>c.offsets + i * VIEW_BYTES
    cdef int32_t length, blob, at
    memcpy(&length, view, 4)
    if length < 0:
        return ROWS_VIEW
    n[0] = <size_t>length
    if length <= VIEW_INLINE:
        p[0] = view + 4
        return ROWS_OK
    memcpy(&blob, view + 8, 4)
    memcpy(&at, view + 12, 4)
    if blob < 0 or blob >= c.n_blobs or at < 0 or c.blobs[blob] == NULL or at > c.blob_sizes[blob] - length:
        return ROWS_VIEW
    p[0] = c.blobs[blob] + at
    return ROWS_OK


cdef inline int _row(const ColumnC* c, int64_t i, const char** p, size_t* n) noexcept nogil:
    if c.layout == COLUMN_OFFSETS32:
        return _offset_row(c, (<const int32_t*>c.offsets)[i], (<const int32_t*>c.offsets)[i + 1], p, n)
    if c.layout == COLUMN_OFFSETS64:
        return _offset_row(c, (<const int64_t*>c.offsets)[i], (<const int64_t*>c.offsets)[i + 1], p, n)
    if c.layout == COLUMN_VIEWS:
        return _view_row(c, i, p, n)
    if c.layout == COLUMN_OBJECTS:
        p[0] = PyBytes_AS_STRING((<PyObject**>c.offsets)[i])
        n[0] = <size_t>PyBytes_GET_SIZE((<PyObject**>c.offsets)[i])
        return ROWS_OK
    p[0] = c.data + i * c.stride
    n[0] = _unpadded(p[0], c.width) if c.layout == COLUMN_PADDED else <size_t>c.width
    return ROWS_OK


cdef int column_rows(
    const ColumnC* c, int64_t row, size_t n, bint nulls, const char** pointers, size_t* lengths, int64_t* bad
) noexcept nogil:
    cdef size_t i
    cdef int problem
    for i in range(n):
        if _is_null(c, c.start + row + <int64_t>i):
            problem = ROWS_OK if nulls else ROWS_NULL
            pointers[i] = NULL
            lengths[i] = 0
        else:
            problem = _row(c, c.start + row + <int64_t>i, &pointers[i], &lengths[i])
        if problem != ROWS_OK:
            bad[0] = row + <int64_t>i
            return problem
    return ROWS_OK


cdef int rows_refuse(int problem, int64_t row) except -1:
    if problem == ROWS_NULL:
        raise ValueError(f"row {row} is null")
    if problem == ROWS_OFFSETS:
        raise ValueError(f"row {row}: its offsets decrease or lie outside the data")
    raise ValueError(f"row {row}: its view lies outside its buffer")


# --- arrays ----------------------------------------------------------------------------------------------------------

cdef int64_t _fixed_width(const char* format) except -1:
    """The n of "w:n"."""
    cdef str digits = (<bytes>format)[2:].decode("ascii", "replace")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > (1 << 31) - 1:
        raise ValueError(f"an Arrow format of unknown width: w:{digits}")
    return int(digits)


cdef int column_layout(const ArrowSchema* schema, ColumnC* c) except -1:
    cdef const char* format = schema.format
    if format == NULL:
        raise ValueError("an Arrow schema without a format")
    if schema.dictionary != NULL:
        raise TypeError("a dictionary-encoded column: cast it to binary")
    if strcmp(format, b"z") == 0 or strcmp(format, b"u") == 0:
        c.layout = COLUMN_OFFSETS32
    elif strcmp(format, b"Z") == 0 or strcmp(format, b"U") == 0:
        c.layout = COLUMN_OFFSETS64
    elif strcmp(format, b"vz") == 0 or strcmp(format, b"vu") == 0:
        c.layout = COLUMN_VIEWS
    elif strncmp(format, b"w:", 2) == 0:
        c.layout = COLUMN_FIXED
        c.width = c.stride = _fixed_width(format)
    else:
        shown = (<bytes>format).decode("utf-8", "replace")
        raise TypeError(f"not a column of bytes, but of the Arrow format {shown!r}: cast it to binary")
    return 0


cdef int _take_validity(const ArrowArray* array, ColumnC* c) except -1:
    c.validity = NULL
    if array.null_count == 0:
        return 0
    if array.null_count < -1 or array.null_count > array.length:
        raise ValueError(f"an Arrow array of {array.length} rows and {array.null_count} nulls")
    if array.buffers[0] == NULL and array.null_count > 0:
        raise ValueError("an Arrow array with nulls but without a validity bitmap")
    c.validity = <const uint8_t*>array.buffers[0]
    return 0


cdef int _take_views(const ArrowArray* array, ColumnC* c) except -1:
    cdef int64_t i
    c.offsets = array.buffers[1]
    c.n_blobs = array.n_buffers - 3
    c.blobs = <const char**>array.buffers + 2
    c.blob_sizes = <const int64_t*>array.buffers[array.n_buffers - 1]
    if c.n_blobs and c.blob_sizes == NULL:
        raise ValueError("an Arrow array of views without the sizes of its buffers")
    for i in range(c.n_blobs):
        if c.blob_sizes[i] < 0:
            raise ValueError(f"an Arrow array with a buffer of {c.blob_sizes[i]} bytes")
    return 0


cdef int _take_offsets(const ArrowArray* array, ColumnC* c) except -1:
    c.offsets = array.buffers[1]
    c.data = <const char*>array.buffers[2]
    c.data_size = INT64_MAX
    if c.data == NULL:
        c.data = _NOTHING
        c.data_size = 0
    return 0


cdef int column_of_array(const ArrowArray* array, int64_t offset, int64_t length, ColumnC* c) except -1:
    cdef int64_t wanted = 2 if c.layout == COLUMN_FIXED else 3
    cdef int64_t n = array.n_buffers
    if array.length < 0 or array.offset < 0 or array.offset > INT64_MAX // 32 or array.length > INT64_MAX // 32:
        raise ValueError(f"an Arrow array of {array.length} rows from row {array.offset} on")
    if length > array.length or offset > array.length - length:
        raise ValueError(f"an Arrow array of {array.length} rows where {offset + length} are needed")
    if array.dictionary != NULL:
        raise ValueError("an Arrow array with a dictionary that its schema lacks")
    if array.buffers == NULL or (n < wanted if c.layout == COLUMN_VIEWS else n != wanted):
        raise ValueError(f"an Arrow array with {n} buffers where {wanted} are needed")
    c.length = length
    c.start = array.offset + offset
    c.data = _NOTHING
    _take_validity(array, c)
    if length == 0:
        return 0
    if array.buffers[1] == NULL and not (c.layout == COLUMN_FIXED and c.width == 0):
        raise ValueError("an Arrow array without its second buffer")
    if c.layout == COLUMN_FIXED:
        if c.width and c.start + length > INT64_MAX // c.width:
            raise ValueError(f"an Arrow array of {length} rows of {c.width} bytes from row {c.start} on")
        if c.width:
            c.data = <const char*>array.buffers[1]
    elif c.layout == COLUMN_VIEWS:
        _take_views(array, c)
    else:
        _take_offsets(array, c)
    return 0
