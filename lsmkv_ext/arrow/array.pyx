"""A column for Arrow's consumers."""

from lsmkv_ext.arrow.builder cimport column_share
from lsmkv_ext.arrow.schema cimport schema_capsule
from lsmkv_ext.arrow.stream cimport array_capsule


cdef class ArrowColumn:
    """ArrowColumn()\n--\n\n\
    A column of byte strings. `DB.multi_get_arrow` returns it.

    Pass it to whatever reads `__arrow_c_array__`: `pyarrow.array`, `polars.Series`, `pandas.Series.from_arrow`. They share its
    memory.

    >>> db.put(b"ada", b"1815")
    >>> column = db.multi_get_arrow([b"ada", b"bob"])
    >>> len(column), column.null_count
    (2, 1)
    """

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray shared
        cdef object schema = schema_capsule(&self.field, 1, False)
        column_share(&self.array, &shared)
        try:
            return schema, array_capsule(&shared)
        finally:
            if shared.release != NULL:
                shared.release(&shared)

    def __arrow_c_schema__(self):
        return schema_capsule(&self.field, 1, False)

    def __len__(self):
        return self.array.length

    @property
    def null_count(self):
        """The number of rows that are null.

        >>> db.multi_get_arrow([b"bob"]).null_count
        1
        """
        return self.array.null_count


cdef ArrowColumn new_column(ArrowArray* array, const Field* field):
    cdef ArrowColumn column = ArrowColumn.__new__(ArrowColumn)
    column.array = array[0]
    array.release = NULL
    column.field = field[0]
    return column
