# The output file of a table builder: buffered writes, frames, early write-back.
#
# output_open creates the file; then emits; then output_close (flush, fsync, close) or output_abandon (close, unlink); output_free
# in any case. One thread.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.compression cimport Compressor
from lsmkv_ext.port.growable cimport GrowBuf
from lsmkv_ext.port.status cimport Status

ctypedef struct TableOutput:
    char* path                     # owned; NULL = not open
    int fd
    GrowBuf buf                    # bytes not yet written
    GrowBuf packed                 # compression output
    Compressor compressor
    uint64_t written               # bytes handed to write(2)
    uint64_t started               # of these, bytes whose write-back was started

cdef int output_open(TableOutput* o, const char* path, Status* st) noexcept nogil
cdef int output_emit(TableOutput* o, const char* p, size_t n, Status* st) noexcept nogil
# Bypasses the buffer, for large pieces.
cdef int output_emit_direct(TableOutput* o, const char* p, size_t n, Status* st) noexcept nogil
# Writes `raw` as a framed section, compressed if requested (COMPRESSION_*) and if that saves a sixteenth. *size includes the
# trailer. What zstd compresses beyond its bound is compressed with LZ4.
cdef int output_emit_frame(TableOutput* o, GrowBuf* raw, int section, int compression, uint64_t* size, Status* st) noexcept nogil
cdef int output_emit_zeros(TableOutput* o, uint64_t n, Status* st) noexcept nogil
cdef int output_close(TableOutput* o, Status* st) noexcept nogil
cdef void output_abandon(TableOutput* o) noexcept nogil            # safe on a zeroed struct
cdef void output_free(TableOutput* o) noexcept nogil


cdef inline uint64_t output_offset(const TableOutput* o) noexcept nogil:
    """Returns the offset of the next byte."""
    return o.written + o.buf.len
