# A column of byte strings: where its rows lie, whatever the layout. It borrows all of its memory.
#
# column_of_array trusts what the interface cannot show: that buffers are as long as the rows need, and that the data of offsets
# is as long as its last offset. It refuses everything else that is inconsistent. column_rows checks each row that it touches.

from libc.stdint cimport int64_t, uint8_t

from lsmkv_ext.arrow.abi cimport ArrowArray, ArrowSchema

cdef enum:                        # ColumnC.layout
    COLUMN_FIXED = 0              # rows of `width` bytes
    COLUMN_PADDED = 1             # the same, filled up with zero bytes that do not count: numpy's S
    COLUMN_OFFSETS32 = 2          # row i is data[offsets[i]:offsets[i + 1]]
    COLUMN_OFFSETS64 = 3
    COLUMN_VIEWS = 4              # 16 bytes per row: the bytes themselves, or where they are in `blobs`
    COLUMN_OBJECTS = 5            # pointers to bytes objects, which the owner of the column keeps alive

cdef enum:                        # what column_rows found
    ROWS_OK = 0
    ROWS_NULL = 1
    ROWS_OFFSETS = 2              # offsets that decrease or lie outside the data
    ROWS_VIEW = 3                 # a view that lies outside its buffer

ctypedef struct ColumnC:
    int layout
    int64_t length                # rows
    int64_t start                 # the first row, in the buffers
    int64_t width                 # of a fixed layout
    int64_t stride                # from row to row of a fixed layout
    int64_t data_size             # of COLUMN_OFFSETS; as large as can be if unknown
    const uint8_t* validity       # a bit per row, or NULL: no nulls
    const char* data              # never NULL
    const void* offsets           # or views, or objects
    const char** blobs
    const int64_t* blob_sizes
    int64_t n_blobs

# Where n rows from `row` on lie. A null row is ROWS_NULL or, with `nulls`, a NULL pointer; an empty one is not NULL. *bad is the
# bad row.
cdef int column_rows(
    const ColumnC* c, int64_t row, size_t n, bint nulls, const char** pointers, size_t* lengths, int64_t* bad
) noexcept nogil
cdef int rows_refuse(int problem, int64_t row) except -1     # raises ValueError; `row` is the one to name

# The layout of a schema's format. TypeError if it is none of byte strings.
cdef int column_layout(const ArrowSchema* schema, ColumnC* c) except -1
# The rows [offset, offset + length) of an array with that layout. ValueError if it is inconsistent.
cdef int column_of_array(const ArrowArray* array, int64_t offset, int64_t length, ColumnC* c) except -1
