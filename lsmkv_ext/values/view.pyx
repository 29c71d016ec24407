cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport uint64_t

from lsmkv_ext.port.pages cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap, page_ceil, page_floor
from lsmkv_ext.port.status cimport ST_OK, fail_io
from lsmkv_ext.values.format cimport VALUE_HEADER, value_size
from lsmkv_ext.values.reader cimport ValueLogC, value_acquire, value_check, value_release


cdef int map_value(ValueView view, ValueLogC* log, const ValuePointer* p, Status* st) noexcept nogil:
    cdef uint64_t start = page_floor(p.offset)
    cdef uint64_t size = page_ceil(p.offset + value_size(p.stored, p.raw)) - start
    cdef void* mapped
    cdef int fd = -1
    if value_acquire(log, p, &fd, st) != ST_OK:
        return st.code
    mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, <long>start)
    if mapped == MAP_FAILED:
        fail_io(st, "mapping a value", errno)
    value_release(log)
    if st.code != ST_OK:
        return st.code
    view.mapped = <char*>mapped
    view.mapped_size = size
    view.data = view.mapped + (p.offset - start) + VALUE_HEADER
    view.size = p.raw
    return value_check(log, p, view.data - VALUE_HEADER, st)


@cython.no_gc       # its references cannot form a cycle
cdef class ValueView:
    """The buffer behind a memoryview of a large value."""

    def __dealloc__(self):
        if self.mapped != NULL:
            munmap(self.mapped, self.mapped_size)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.data, self.size, True, flags)


cdef ValueView value_view(ValueLog log, const ValuePointer* p, Status* st):
    cdef ValueView view = ValueView()
    cdef ValueLogC* c = log.c
    view.log = log
    with nogil:
        map_value(view, c, p, st)
    return view if st.code == ST_OK else None
