# A log, read: through a window, record by record. The reader trusts no byte; it knows neither what becomes of a record's
# operations nor who asks. Layout: wal/format.pxd.
#
# A LogFile belongs to one thread at a time.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.status cimport Status
from lsmkv_ext.wal.format cimport LogHead, LogRecord, record_size

cdef enum:
    READ_WINDOW = 1 << 20       # bytes of a usual window; a larger record gets a larger one

ctypedef struct LogFile:
    int fd                      # owned
    char* window                # owned; holds the file's bytes [start, start + held)
    size_t capacity             # of the window
    uint64_t start
    size_t held
    uint64_t size               # of the file when it was opened
    LogHead head                # head.known_synced grows with what records say
    uint64_t offset             # of the next record

# Decodes the head page; *file stands at the first record then. `number` as in head_decode.
cdef int log_read_head(LogFile* file, uint64_t number, Status* st) noexcept nogil
# NULL and *record, which lies in the window until another part of the log is read. Else why there is none at file.offset: "" for
# the clean end of the log. A failed read is in *st.
cdef const char* log_read_record(LogFile* file, LogRecord* record, Status* st) noexcept nogil
# 1: only zeros follow `at`, 0: something else does, -1: *st. Holes of the file are not read: a log is allocated far ahead, and
# one that claims a terabyte must not take minutes.
cdef int log_blank_from(LogFile* file, uint64_t at, Status* st) noexcept nogil
# Frees a window larger than usual, and what was given out of it.
cdef void log_release_window(LogFile* file) noexcept nogil
# Frees the whole pages of [start, stop) in such a window: they read as zeros then.
cdef void log_release_pages(LogFile* file, const char* start, const char* stop) noexcept nogil


cdef inline void log_skip_record(LogFile* file, const LogRecord* record) noexcept nogil:
    file.offset = record.offset + record_size(record.size)


cdef class LogReader:           # owns an open LogFile
    cdef LogFile file
    cdef readonly str path
