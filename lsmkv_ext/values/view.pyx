cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint64_t

from lsmkv_ext.port.atomics cimport lsm_load64
from lsmkv_ext.port.pages cimport page_ceil
from lsmkv_ext.port.status cimport ST_OK, fail_io
from lsmkv_ext.values.format cimport VALUE_HEADER, pointer_end
from lsmkv_ext.values.mapping cimport map_values
from lsmkv_ext.values.reader cimport ValueLogC, value_acquire, value_check, value_release

cdef enum:
    ROOM = 16 << 20             # bytes mapped beyond the end of a short file, which may grow


cdef ValueMap mapping_of(ValueLog log, const ValuePointer* p, Status* st):
    """A mapping that has the value. A log that grows is mapped again each time it has doubled."""
    cdef ValueMap map = log.map
    cdef uint64_t end
    cdef int fd = -1
    cdef int err = 0
    if map is not None and pointer_end(p) <= map.size:
        return map
    if value_acquire(log.c, p, &fd, st) != ST_OK:
        return None
    end = lsm_load64(&log.c.end)
    map = map_values(fd, page_ceil(end + max(end, <uint64_t>ROOM)), &err)
    value_release(log.c)
    if map is None:
        fail_io(st, "mapping a value log", err)
    else:
        log.map = map
    return map


@cython.no_gc       # its references cannot form a cycle
cdef class ValueView:
    """The buffer behind a memoryview of a large value."""

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.data, self.size, True, flags)


cdef ValueView value_view(ValueLog log, const ValuePointer* p, Status* st):
    cdef ValueView view = ValueView()
    cdef ValueLogC* c = log.c
    view.log = log
    view.map = mapping_of(log, p, st)
    if view.map is None:
        return None
    view.data = view.map.data + p.offset + VALUE_HEADER
    view.size = p.raw
    with nogil:
        value_check(c, p, view.data - VALUE_HEADER, st)
    return view if st.code == ST_OK else None
