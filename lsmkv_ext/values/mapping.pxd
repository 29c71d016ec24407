# A mapping of the start of a value log, shared by all views into it. Bytes beyond the end of the file are mapped and not touched,
# so that a mapping serves a log that grows.

cdef class ValueMap:
    cdef const char* data       # owned mapping
    cdef size_t size

# Maps the first `size` bytes of a file. None with *err set.
cdef ValueMap map_values(int fd, size_t size, int* err)
