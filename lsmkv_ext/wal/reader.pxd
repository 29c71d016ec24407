# Reads a log record by record, through a window. The reader trusts no byte and does not interpret operations. Layout:
# wal/format.pxd.
#
# A LogFile belongs to one thread at a time.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.status cimport Status
from lsmkv_ext.wal.format cimport LogHead, LogRecord, record_size

cdef enum:
    READ_WINDOW = 1 << 20       # bytes of the usual window; a larger record gets a larger one

ctypedef struct LogFile:
    int fd                      # owned
    char* window                # owned; the bytes [start, start + held) of the file
    size_t capacity             # of the window
    uint64_t start
    size_t held
    uint64_t size               # of the file when it was opened
    LogHead head                # records may raise head.known_synced
    uint64_t offset             # of the next record

# Decodes the head page and moves to the first record. `number` as in head_decode.
cdef int log_read_head(LogFile* file, uint64_t number, Status* st) noexcept nogil
# Reads the record at file.offset. Returns NULL and *record, whose payload is in the window until the next read; or why there is
# no record: "" at the clean end of the log. A failed read is in *st.
cdef const char* log_read_record(LogFile* file, LogRecord* record, Status* st) noexcept nogil
# Returns 1 if only zeros follow `at`, 0 if something else does, -1 with *st set. Skips holes of the file: a hostile log may
# claim a terabyte.
cdef int log_blank_from(LogFile* file, uint64_t at, Status* st) noexcept nogil
# Frees a window larger than the usual one. Payloads in it become invalid.
cdef void log_release_window(LogFile* file) noexcept nogil
# Frees the whole pages of [start, stop) in such a window; they then read as zeros.
cdef void log_release_pages(LogFile* file, const char* start, const char* stop) noexcept nogil


cdef inline void log_skip_record(LogFile* file, const LogRecord* record) noexcept nogil:
    file.offset = record.offset + record_size(record.size)


cdef class LogReader:           # owns an open LogFile
    cdef LogFile file
    cdef readonly str path
