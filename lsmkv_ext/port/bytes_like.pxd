# Keys and values as callers give them: any bytes-like object, never a str.

from cpython.buffer cimport Py_buffer

# bytes as they are; other bytes-like objects copied. TypeError for str and for what has no buffer.
cpdef bytes as_bytes(object data)
# The contiguous buffer of `data`, or of a copy where it is not contiguous; the caller releases it. Same errors.
cdef int get_bytes_view(object data, Py_buffer* view) except -1
cdef int refuse_str() except -1
