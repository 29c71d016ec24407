# Whether the rows of a column are UTF-8, as Arrow's string types promise their readers.

from libc.stdint cimport int64_t

from lsmkv_ext.arrow.builder cimport ColumnBuilder

cdef int64_t utf8_bad_row(const ColumnBuilder* b) noexcept nogil        # the first row that is not, or -1
