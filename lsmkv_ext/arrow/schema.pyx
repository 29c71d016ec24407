"""Arrow schemas of columns of byte strings."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset, strcmp

cdef enum:
    FLAG_NULLABLE = 2

ctypedef struct TableSchema:
    ArrowSchema* pointers[MAX_FIELDS]
    ArrowSchema children[MAX_FIELDS]

cdef const char* BINARY = b"z"
cdef const char* LARGE_BINARY = b"Z"
cdef const char* STRING = b"u"
cdef const char* LARGE_STRING = b"U"


cdef const char* format_of_type(object name) except NULL:
    if name == "binary":
        return BINARY
    if name == "large_binary":
        return LARGE_BINARY
    if name == "string":
        return STRING
    if name == "large_string":
        return LARGE_STRING
    raise ValueError(f'the type of a column is "binary", "large_binary", "string" or "large_string", not {name!r}')


cdef const char* _known(const char* format) noexcept:
    """The static text of a format that we have, or NULL."""
    cdef const char* known
    for known in (BINARY, LARGE_BINARY, STRING, LARGE_STRING):
        if strcmp(known, format) == 0:
            return known
    return NULL


# --- making them -----------------------------------------------------------------------------------------------------

cdef void _release_field(ArrowSchema* schema) noexcept nogil:
    schema.release = NULL


cdef void _release_table(ArrowSchema* schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release != NULL:
            schema.children[i].release(schema.children[i])
    schema.release = NULL
    free(schema.private_data)


cdef void schema_of_field(const Field* field, ArrowSchema* out) noexcept nogil:
    memset(out, 0, sizeof(ArrowSchema))
    out.format = field.format
    out.name = field.name
    out.flags = FLAG_NULLABLE if field.nullable else 0
    out.release = _release_field


cdef int schema_of_table(const Field* fields, int n, ArrowSchema* out) noexcept nogil:
    cdef TableSchema* table = <TableSchema*>calloc(1, sizeof(TableSchema))
    cdef int i
    if table == NULL:
        return -1
    for i in range(n):
        schema_of_field(&fields[i], &table.children[i])
        table.pointers[i] = &table.children[i]
    memset(out, 0, sizeof(ArrowSchema))
    out.format = b"+s"
    out.name = b""
    out.n_children = n
    out.children = table.pointers
    out.private_data = table
    out.release = _release_table
    return 0


# --- what a consumer asks for ----------------------------------------------------------------------------------------

cdef int take_requested(object capsule, Field* fields, int n, bint as_table) except -1:
    cdef ArrowSchema* asked
    cdef ArrowSchema* field
    cdef const char* formats[MAX_FIELDS]
    cdef int i
    if capsule is None:
        return 0
    asked = <ArrowSchema*>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if asked.release == NULL:
        raise ValueError("an Arrow schema that was released or taken already")
    if as_table and (asked.n_children != n or asked.children == NULL):
        return 0
    for i in range(n):
        field = asked.children[i] if as_table else asked
        if field == NULL or field.format == NULL:
            return 0
        formats[i] = _known(field.format)
    for i in range(n):
        if formats[i] != NULL:
            fields[i].format = formats[i]
    return 0


cdef void _drop_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef object schema_capsule(const Field* fields, int n, bint as_table):
    cdef ArrowSchema* schema = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError("Arrow schema")
    if not as_table:
        schema_of_field(fields, schema)
    elif schema_of_table(fields, n, schema) != 0:
        free(schema)
        raise MemoryError("Arrow schema")
    try:
        return PyCapsule_New(schema, b"arrow_schema", _drop_schema)
    except BaseException:
        schema.release(schema)
        free(schema)
        raise
