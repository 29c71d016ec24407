cimport cython
from libc.errno cimport errno

from lsmkv_ext.port.pages cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap


@cython.no_gc       # it has no references
cdef class ValueMap:
    """A mapping of a value log; munmap when the last view is gone."""

    def __dealloc__(self):
        if self.data != NULL:
            munmap(<void*>self.data, self.size)


cdef ValueMap map_values(int fd, size_t size, int* err):
    cdef ValueMap m = ValueMap()
    cdef void* data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)
    if data == MAP_FAILED:
        err[0] = errno
        return None
    m.data = <const char*>data
    m.size = size
    return m
