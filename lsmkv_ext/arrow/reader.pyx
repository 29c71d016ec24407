"""Columns of byte strings out of Arrow capsules and numpy buffers."""

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBUF_STRIDES,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_CheckExact
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memset, strcmp

from lsmkv_ext.arrow.column cimport (
    COLUMN_FIXED,
    COLUMN_OBJECTS,
    COLUMN_OFFSETS32,
    COLUMN_OFFSETS64,
    COLUMN_PADDED,
    ROWS_OK,
    column_layout,
    column_of_array,
    column_rows,
    rows_refuse,
)

from lsmkv_ext.port.bytes_like cimport as_bytes

import os

cdef extern from "Python.h":
    void** PySequence_Fast_ITEMS(object o)

cdef const char* _NOTHING = ""


# --- moving structures out of capsules -----------------------------------------------------------------------------

cdef int _move_schema(object capsule, ArrowSchema* out) except -1:
    cdef ArrowSchema* found = <ArrowSchema*>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if found.release == NULL:
        raise ValueError("an Arrow schema that was released or taken already")
    out[0] = found[0]
    found.release = NULL
    return 0


cdef int _move_array(object capsule, ArrowArray* out) except -1:
    cdef ArrowArray* found = <ArrowArray*>PyCapsule_GetPointer(capsule, b"arrow_array")
    if found.release == NULL:
        raise ValueError("an Arrow array that was released or taken already")
    out[0] = found[0]
    found.release = NULL
    return 0


cdef int _move_stream(object capsule, ArrowStream* out) except -1:
    cdef ArrowStream* found = <ArrowStream*>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if found.release == NULL:
        raise ValueError("an Arrow stream that was released or taken already")
    out[0] = found[0]
    found.release = NULL
    return 0


cdef void _drop_array(ArrowArray* array) noexcept:
    if array.release != NULL:
        array.release(array)
        array.release = NULL


cdef int _stream_failed(ArrowStream* stream, int code) except -1:
    cdef const char* text = stream.get_last_error(stream) if stream.get_last_error != NULL else NULL
    reason = (<bytes>text).decode("utf-8", "replace") if text != NULL else os.strerror(code)
    if code == ENOMEM:
        raise MemoryError(f"the Arrow stream failed: {reason}")
    raise ValueError(f"the Arrow stream failed: {reason}")


# --- the reader ------------------------------------------------------------------------------------------------------

cdef class ColumnReader:
    """Columns of byte strings, chunk by chunk."""

    def __cinit__(self, int n_columns):
        memset(&self.stream, 0, sizeof(ArrowStream))
        memset(&self.schema, 0, sizeof(ArrowSchema))
        memset(&self.array, 0, sizeof(ArrowArray))
        memset(self.columns, 0, sizeof(self.columns))
        memset(self.views, 0, sizeof(self.views))
        self.n_columns = n_columns
        self.length = 0
        self.pending = False

    def __dealloc__(self):
        cdef int i
        _drop_array(&self.array)
        if self.schema.release != NULL:
            self.schema.release(&self.schema)
        if self.stream.release != NULL:
            self.stream.release(&self.stream)
        for i in range(2):
            PyBuffer_Release(&self.views[i])         # does nothing for one that was never filled

    cdef bint next(self) except -1:
        """Moves to the next chunk. False at the end, also if called again."""
        cdef int code
        if self.pending:
            self.pending = False
            return True
        if self.stream.release == NULL:
            return False
        _drop_array(&self.array)
        with nogil:
            code = self.stream.get_next(&self.stream, &self.array)
        if code != 0:
            self.array.release = NULL
            _stream_failed(&self.stream, code)
        if self.array.release == NULL:
            self.stream.release(&self.stream)
            self.stream.release = NULL
            return False
        self._take_chunk()
        return True

    cdef int _take_stream(self, object source) except -1:
        cdef int code
        _move_stream(source.__arrow_c_stream__(), &self.stream)
        if self.stream.get_schema == NULL or self.stream.get_next == NULL:
            raise ValueError("an Arrow stream without its functions")
        with nogil:
            code = self.stream.get_schema(&self.stream, &self.schema)
        if code != 0:
            self.schema.release = NULL
            _stream_failed(&self.stream, code)
        return self._take_schema()

    cdef int _take_array(self, object source) except -1:
        pair = source.__arrow_c_array__()
        if type(pair) is not tuple or len(pair) != 2:
            raise TypeError("__arrow_c_array__ must return two capsules")
        _move_schema(pair[0], &self.schema)
        _move_array(pair[1], &self.array)
        self._take_schema()
        self._take_chunk()
        self.pending = True
        return 0

    cdef int _take_schema(self) except -1:
        """Checks that the schema is of n_columns columns of bytes: itself, or the children of a struct."""
        cdef int64_t i, n = self.schema.n_children
        if self.schema.release == NULL or self.schema.format == NULL:
            raise ValueError("an Arrow schema that was released, or has no format")
        if strcmp(self.schema.format, b"+s") != 0:
            if self.n_columns != 1:
                raise TypeError(f"one column where {self.n_columns} are needed")
            return column_layout(&self.schema, &self.columns[0])
        if n != self.n_columns:
            raise TypeError(f"{n} columns where {self.n_columns} {'is' if self.n_columns == 1 else 'are'} needed")
        for i in range(n):
            if self.schema.children == NULL or self.schema.children[i] == NULL:
                raise ValueError("an Arrow schema without its children")
            column_layout(self.schema.children[i], &self.columns[i])
        return 0

    cdef int _take_chunk(self) except -1:
        """The columns of `array`."""
        cdef ArrowArray* a = &self.array
        cdef int64_t i
        if strcmp(self.schema.format, b"+s") != 0:
            column_of_array(a, 0, a.length, &self.columns[0])
            self.length = a.length
            return 0
        if a.length < 0 or a.offset < 0 or a.offset > INT64_MAX - a.length:
            raise ValueError(f"an Arrow array of {a.length} rows from row {a.offset} on")
        if a.n_children != self.n_columns or a.children == NULL:
            raise ValueError(f"an Arrow array of {a.n_children} columns where its schema has {self.n_columns}")
        if a.null_count != 0 and a.n_buffers > 0 and a.buffers != NULL and a.buffers[0] != NULL:
            raise ValueError("a table with rows that are null as a whole")
        for i in range(self.n_columns):
            if a.children[i] == NULL:
                raise ValueError("an Arrow array without its children")
            column_of_array(a.children[i], a.offset, a.length, &self.columns[i])
        self.length = a.length
        return 0

    cdef int _take_numpy(self, object source) except -1:
        cdef Py_buffer* v = &self.views[0]
        cdef ColumnC* c = &self.columns[0]
        PyObject_GetBuffer(source, v, PyBUF_FORMAT | PyBUF_STRIDES)
        kind = (<bytes>v.format).decode("ascii", "replace").lstrip("<>=@!|0123456789") if v.format != NULL else "B"
        if v.ndim == 1 and kind in ("s", "x"):
            c.layout = COLUMN_PADDED if kind == "s" else COLUMN_FIXED
            c.width = v.itemsize
        elif v.ndim == 2 and kind in ("B", "b", "c") and v.itemsize == 1:
            if v.shape[1] > 1 and v.strides[1] != 1:
                raise TypeError("the bytes of a row must be contiguous: pass numpy.ascontiguousarray(keys)")
            c.layout = COLUMN_FIXED
            c.width = v.shape[1]
        else:
            raise TypeError("keys in a buffer are numpy arrays of dtype S or V, or of uint8 and two dimensions")
        self.length = c.length = v.shape[0]
        c.stride = v.strides[0]
        c.data = <const char*>v.buf if v.buf != NULL else _NOTHING
        self.pending = True
        return 0

    cdef int _take_pair(self, object data, object offsets) except -1:
        cdef ColumnC* c = &self.columns[0]
        PyObject_GetBuffer(data, &self.views[0], PyBUF_SIMPLE)
        PyObject_GetBuffer(offsets, &self.views[1], PyBUF_FORMAT | PyBUF_STRIDES)
        if self.views[1].strides[0] != self.views[1].itemsize:
            raise TypeError("the offsets must be contiguous: pass numpy.ascontiguousarray(offsets)")
        if self.views[1].shape[0] < 1:
            raise ValueError("no offsets: a column of n rows has n + 1")
        c.layout = COLUMN_OFFSETS32 if self.views[1].itemsize == 4 else COLUMN_OFFSETS64
        c.offsets = self.views[1].buf
        c.data = <const char*>self.views[0].buf if self.views[0].len else _NOTHING
        c.data_size = self.views[0].len
        self.length = c.length = self.views[1].shape[0] - 1
        self.pending = True
        return 0

    cdef int _take_objects(self, object source) except -1:
        cdef ColumnC* c = &self.columns[0]
        cdef list objects = list(source)
        cdef Py_ssize_t i
        for i in range(len(objects)):
            if not PyBytes_CheckExact(objects[i]):
                objects[i] = as_bytes(objects[i])
        self.objects = objects
        c.layout = COLUMN_OBJECTS
        c.data = _NOTHING
        c.offsets = PySequence_Fast_ITEMS(objects)
        self.length = c.length = len(objects)
        self.pending = True
        return 0


# --- sources -------------------------------------------------------------------------------------------------------

cdef bint _is_offsets(object candidate) except -1:
    """Whether it is a buffer of int32 or int64. Nothing else in a pair could be: keys are bytes."""
    if type(candidate) is bytes or not PyObject_CheckBuffer(candidate):
        return False
    with memoryview(candidate) as view:
        return view.ndim == 1 and view.itemsize in (4, 8) and view.format.lstrip("<=@") in ("i", "l", "q")


cdef ColumnReader open_columns(object source, int n_columns):
    """A reader of `source`, or None if that is no source of columns. TypeError or ValueError if it is a wrong one."""
    cdef ColumnReader reader
    if type(source) is list:
        return None
    reader = ColumnReader(n_columns)
    if hasattr(source, "__arrow_c_stream__"):
        reader._take_stream(source)
    elif hasattr(source, "__arrow_c_array__"):
        reader._take_array(source)
    elif n_columns == 1 and type(source) is tuple and len(source) == 2 and _is_offsets(source[1]):
        reader._take_pair(source[0], source[1])
    elif n_columns == 1 and PyObject_CheckBuffer(source):
        reader._take_numpy(source)
    else:
        return None
    return reader


cdef ColumnReader open_rows(object source):
    """A reader of one column or of an iterable. TypeError or ValueError if it is neither."""
    cdef ColumnReader reader
    if isinstance(source, (str, bytes, bytearray)):
        raise TypeError(f"rows are a column or a sequence of bytes, not one {type(source).__name__}")
    reader = open_columns(source, 1)
    if reader is None:
        reader = ColumnReader(1)
        reader._take_objects(source)
    return reader


def column_list(source, bint nulls=False):
    """Return the rows of a column as a list of bytes; with `nulls`, None for null. For tests and small columns."""
    cdef ColumnReader reader = open_columns(source, 1)
    if reader is None:
        raise TypeError(f"not a column: {type(source).__name__}")
    return _rows_of(reader, nulls)


cdef list _rows_of(ColumnReader reader, bint nulls):
    cdef const char* pointer
    cdef size_t length
    cdef int64_t row, bad = 0, before = 0
    cdef int problem
    rows = []
    while reader.next():
        for row in range(reader.length):
            problem = column_rows(&reader.columns[0], row, 1, nulls, &pointer, &length, &bad)
            if problem != ROWS_OK:
                rows_refuse(problem, before + bad)
            rows.append(None if pointer == NULL else pointer[:length])
        before += reader.length
    return rows
