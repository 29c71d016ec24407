# Scans into Arrow batches. An ArrowScan remembers the range and the moment; each of its streams is a ColumnScan of its own, so it
# can be read again.
#
# A ColumnScan fills a whole batch without the GIL. It holds what it reads: the state, and through `owner` the database.
#
# GIL-protected: every field, except for `columns` and what is under `c` while `busy`

from libc.stdint cimport int64_t, uint64_t

from lsmkv_ext.arrow.abi cimport ArrowArray, ArrowSchema
from lsmkv_ext.arrow.builder cimport ColumnBuilder
from lsmkv_ext.arrow.schema cimport MAX_FIELDS, Field
from lsmkv_ext.arrow.stream cimport BatchSource
from lsmkv_ext.port.handle cimport Dependent
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.read.scan cimport Scan

cdef enum:
    MAX_BATCH_ROWS = 1 << 24

ctypedef struct Shape:          # of the batches
    int n_fields
    Field fields[MAX_FIELDS]
    int key_at                  # which field; -1: not wanted
    int value_at
    int64_t batch_rows


cdef class ColumnScan(Scan):
    cdef Shape shape
    cdef ColumnBuilder columns[MAX_FIELDS]      # of the batch being filled, or filled and not taken
    cdef int direction
    cdef size_t most_bytes[MAX_FIELDS]          # of the columns in the largest batch so far: the next one begins with so much
    cdef bint started
    cdef int take(self, ArrowArray* out) except -1      # the next batch; `release` stays NULL at the end
    cdef int begin_columns(self) except -1
    cdef void free_columns(self) noexcept


cdef class ScanSource(BatchSource):
    cdef ColumnScan scan


cdef class ArrowScan(Dependent):
    cdef Dependent owner
    cdef ReadState state        # None: closed
    cdef uint64_t snapshot
    cdef uint64_t now
    cdef object start
    cdef object stop
    cdef object prefix
    cdef bint reverse
    cdef bint fill_cache
    cdef Shape shape
    cdef ColumnScan new_scan(self, object requested_schema)
    cdef int check_open(self) except -1
