# Arrow schemas of columns of byte strings, and of tables of them.

from lsmkv_ext.arrow.abi cimport ArrowSchema

cdef enum:
    MAX_FIELDS = 2

ctypedef struct Field:
    const char* name            # static text
    const char* format          # the same: one of "z", "Z", "u", "U"
    bint nullable

# The field's format for a type that a caller names: "binary", "large_binary", "string" or "large_string". ValueError for another.
cdef const char* format_of_type(object name) except NULL
cdef inline bint is_wide(const char* format) noexcept nogil:
    return format[0] == b"Z" or format[0] == b"U"


cdef inline bint is_text(const char* format) noexcept nogil:
    return format[0] == b"u" or format[0] == b"U"


cdef void schema_of_field(const Field* field, ArrowSchema* out) noexcept nogil
# 0, or -1 if out of memory.
cdef int schema_of_table(const Field* fields, int n, ArrowSchema* out) noexcept nogil
# Sets the fields to the formats that a consumer requests in the capsule of a schema. Ignores formats that we do not have, as the
# interface allows. as_table: the capsule has a struct of the fields, otherwise the field itself.
cdef int take_requested(object capsule, Field* fields, int n, bint as_table) except -1
cdef object schema_capsule(const Field* fields, int n, bint as_table)
