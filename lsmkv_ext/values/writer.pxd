# Appends values to a value log. Layout: values/format.pxd.
#
# One appender at a time: for the value log of puts the writer, who holds the turn of the engine or the GIL; a job or an ingest
# has a value log of its own. value_sync may run concurrently, from any thread.
#
# An append that fails leaves `offset` where it was: the next one overwrites what was written. Nothing points there.
#
# While nobody syncs, zeros are written ahead of short values in large steps. The page cache then has large folios, which are
# cheaper to fill and to read than single pages, and a put does not change the size of the file.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.compression cimport Compressor
from lsmkv_ext.port.growable cimport GrowBuf
from lsmkv_ext.port.pthread cimport pthread_mutex_t
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ValueLog, ValueLogC

ctypedef struct ValueWriterC:
    int fd
    uint64_t number
    uint64_t identity
    uint64_t offset             # where the next value goes; atomic: value_sync reads it
    uint64_t prefaulted         # zeros were written up to here; if below `offset`, none are ahead
    ValueLogC* log              # borrowed: its `end` follows `offset`; NULL: nobody reads yet
    GrowBuf packed              # compressed chunks
    Compressor compressor
    GrowBuf table
    pthread_mutex_t sync_mutex
    uint64_t synced             # values below are on disk; atomic
    int sync_error              # errno of the first fdatasync that failed; never cleared

# Creates the file and writes its head. On failure there is no file.
cdef int value_writer_open(ValueWriterC* w, const char* path, uint64_t number, uint64_t identity, Status* st) noexcept nogil
cdef void value_writer_close(ValueWriterC* w) noexcept nogil       # safe on a zeroed struct
# Appends a value, compressed (COMPRESSION_*) if that saves a sixteenth of its first MiB. Takes little memory. A value whose first
# chunks zstd compresses beyond its bound is compressed with LZ4.
cdef int value_append(ValueWriterC* w, const char* value, size_t n, int compression, ValuePointer* out,
                      Status* st) noexcept nogil
# Appends a copy of another log's value as it is stored, checked. Takes little memory.
cdef int value_copy(ValueWriterC* w, ValueLogC* source, const ValuePointer* p, ValuePointer* out, Status* st) noexcept nogil
# Appends a value that arrives in pieces, each of them whole chunks but for the last. `p` is the pointer as far as it is known:
# stream_begin sets raw and compression, stream_add adds to `stored`. The value exists after stream_end.
cdef int stream_begin(ValueWriterC* w, uint64_t raw, int compression, ValuePointer* p, Status* st) noexcept nogil
cdef int stream_add(ValueWriterC* w, ValuePointer* p, uint64_t first_chunk, const char* data, size_t n, Status* st) noexcept nogil
cdef int stream_end(ValueWriterC* w, ValuePointer* p, Status* st) noexcept nogil
# Returns once everything appended so far is on disk: 0 or the errno. After a failure it never succeeds again.
cdef int value_sync(ValueWriterC* w) noexcept nogil
# The same, after the last append: the file ends with its last value.
cdef int value_seal(ValueWriterC* w) noexcept nogil


# Exactly n bytes of a file object. Raises ValueError if it ends before. Runs Python code.
cdef bytes read_exactly(object file, uint64_t n)


cdef class ValueWriter:
    cdef ValueWriterC* c        # owned
    cdef readonly ValueLog log
    cdef readonly str path
