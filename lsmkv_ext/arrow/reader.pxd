# Reads columns of byte strings from a Python object, chunk by chunk, without a Python object per row.
#
#     reader = open_columns(obj, 1)            None: not columns
#     while reader.next():
#         ... reader.columns[0] ...            valid until the next call of next
#
# A source is an object with __arrow_c_stream__ or __arrow_c_array__; a numpy array of dtype S or V, or of uint8 and two
# dimensions; or a pair of buffers (data, offsets). Several columns come as a struct: a table or a record batch.
# open_rows also takes an iterable of bytes-like objects, which is one column.
#
# A ColumnReader belongs to one call and one thread. It owns what it has taken out of the capsules and releases each structure
# once, also after an error.

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t

from lsmkv_ext.arrow.abi cimport ArrowArray, ArrowSchema, ArrowStream
from lsmkv_ext.arrow.column cimport ColumnC

cdef enum:
    MAX_COLUMNS = 2

cdef class ColumnReader:
    cdef ColumnC columns[MAX_COLUMNS]
    cdef int n_columns
    cdef int64_t length           # rows of the chunk
    cdef ArrowStream stream       # owned if `release` is set; so are the next two
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef Py_buffer views[2]       # owned if `obj` is set
    cdef list objects             # rows of COLUMN_OBJECTS, ours alone
    cdef bint pending             # a chunk that next has not returned yet
    cdef bint next(self) except -1
    cdef int _take_stream(self, object source) except -1
    cdef int _take_array(self, object source) except -1
    cdef int _take_numpy(self, object source) except -1
    cdef int _take_pair(self, object data, object offsets) except -1
    cdef int _take_objects(self, object source) except -1
    cdef int _take_schema(self) except -1
    cdef int _take_chunk(self) except -1

cdef ColumnReader open_columns(object source, int n_columns)
cdef ColumnReader open_rows(object source)
