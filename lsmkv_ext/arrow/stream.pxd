# Exports batches as an Arrow stream: `stream_capsule(source)` returns what `__arrow_c_stream__` returns.
#
# The stream owns a reference to its source. The consumer may call it from any thread, with or without the GIL, and from several
# one after the other. An exception of the source becomes an errno and a text. Releasing the stream calls `end` of the source,
# even if other references to it remain.

from lsmkv_ext.arrow.abi cimport ArrowArray, ArrowSchema

cdef class BatchSource:
    cdef object text            # bytes: the last error
    cdef int write_schema(self, ArrowSchema* out) except -1
    cdef int next_batch(self, ArrowArray* out) except -1        # `release` stays NULL at the end
    cdef void end(self) noexcept

cdef object stream_capsule(BatchSource source)
# The capsule of an array, which is moved into it.
cdef object array_capsule(ArrowArray* array)
