# Errors of nogil code, and the one place that turns them into exceptions.
#
# A nogil function that can fail returns an int: ST_OK, or the code that it stored in *st. The first failure wins; callers
# return the code. Once the GIL is held again, raise_status raises the exception.

from libc.stdint cimport uint64_t

cdef enum:
    ST_OK = 0
    ST_NOT_FOUND = 1
    ST_CORRUPT = 2      # at `offset` of file `file_number`
    ST_IO = 3           # err is the errno
    ST_NO_MEMORY = 4
    ST_CANCELLED = 5
    ST_BAD_ARGUMENT = 6
    ST_FORMAT = 7       # a newer release wrote file `file_number`

ctypedef struct Status:
    int code
    int err
    uint64_t file_number
    uint64_t offset
    const char* what    # static text: never freed


cdef inline void status_clear(Status* st) noexcept nogil:
    st.code = ST_OK
    st.err = 0
    st.file_number = 0
    st.offset = 0
    st.what = NULL


cdef inline int fail_corrupt(Status* st, const char* what, uint64_t file_number, uint64_t offset) noexcept nogil:
    st.code = ST_CORRUPT
    st.what = what
    st.file_number = file_number
    st.offset = offset
    return ST_CORRUPT


cdef inline int fail_io(Status* st, const char* what, int err) noexcept nogil:
    st.code = ST_IO
    st.what = what
    st.err = err
    return ST_IO


cdef inline int fail_memory(Status* st, const char* what) noexcept nogil:
    st.code = ST_NO_MEMORY
    st.what = what
    return ST_NO_MEMORY


cdef inline int fail_argument(Status* st, const char* what) noexcept nogil:
    st.code = ST_BAD_ARGUMENT
    st.what = what
    return ST_BAD_ARGUMENT


cdef inline int fail_format(Status* st, const char* what, uint64_t file_number) noexcept nogil:
    st.code = ST_FORMAT
    st.what = what
    st.file_number = file_number
    return ST_FORMAT


cdef int raise_status(const Status* st, object path) except -1
