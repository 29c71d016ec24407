# Arrow's C data interface and C stream interface: structures by which the libraries of a process
# exchange columns without linking to each other.
#
# A structure is owned by whoever holds it, and is released by calling its `release` once, which sets `release` to NULL. Moving a
# structure copies it and sets `release` of the source to NULL. The children of a schema or array are released with it.

from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #ifndef LSMKV_ARROW_H
    #define LSMKV_ARROW_H
    #include <stdint.h>
    typedef struct LsmArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct LsmArrowSchema **children, *dictionary;
        void (*release)(struct LsmArrowSchema*);
        void* private_data;
    } LsmArrowSchema;
    typedef struct LsmArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void** buffers;
        struct LsmArrowArray **children, *dictionary;
        void (*release)(struct LsmArrowArray*);
        void* private_data;
    } LsmArrowArray;
    typedef struct LsmArrowStream {
        int (*get_schema)(struct LsmArrowStream*, LsmArrowSchema* out);
        int (*get_next)(struct LsmArrowStream*, LsmArrowArray* out);
        const char* (*get_last_error)(struct LsmArrowStream*);
        void (*release)(struct LsmArrowStream*);
        void* private_data;
    } LsmArrowStream;
    #endif
    """
    ctypedef struct ArrowSchema "LsmArrowSchema":
        const char* format
        const char* name
        const char* metadata
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil
        void* private_data
    ctypedef struct ArrowArray "LsmArrowArray":
        int64_t length              # rows
        int64_t null_count          # -1: unknown
        int64_t offset              # rows of the buffers to skip
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data
    ctypedef struct ArrowStream "LsmArrowStream":
        int (*get_schema)(ArrowStream*, ArrowSchema* out) noexcept nogil        # 0 or an errno
        int (*get_next)(ArrowStream*, ArrowArray* out) noexcept nogil           # the same; a released array at the end
        const char* (*get_last_error)(ArrowStream*) noexcept nogil              # may be NULL
        void (*release)(ArrowStream*) noexcept nogil
        void* private_data
