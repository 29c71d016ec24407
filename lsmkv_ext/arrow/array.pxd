# A column of byte strings that Python objects pass on: owns an array of column_finish, and lends it to any number of consumers.

from lsmkv_ext.arrow.abi cimport ArrowArray
from lsmkv_ext.arrow.schema cimport Field


cdef class ArrowColumn:
    cdef ArrowArray array       # owned if `release` is set
    cdef Field field

# Takes over the array.
cdef ArrowColumn new_column(ArrowArray* array, const Field* field)
