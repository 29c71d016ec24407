"""Bytes-like keys and values."""

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_CheckExact


cdef int refuse_str() except -1:
    raise TypeError("keys and values are bytes, not str: encode it first")


cpdef bytes as_bytes(object data):
    """Return `data` as bytes: bytes as they are, any other bytes-like object copied. Raise TypeError for a str."""
    if PyBytes_CheckExact(data):
        return <bytes>data
    if isinstance(data, str):
        refuse_str()
    return bytes(memoryview(data))


cdef int get_bytes_view(object data, Py_buffer* view) except -1:
    if isinstance(data, str):
        refuse_str()
    try:
        PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    except BufferError:
        # Not contiguous. The view keeps the copy alive.
        PyObject_GetBuffer(as_bytes(data), view, PyBUF_SIMPLE)
    return 0
