# Pays filter debt: copies the data blocks of a table byte for byte into a new file, with a filter for another level or another
# number of bits per key. Blocks are decompressed only to hash their keys; without a new filter they are not.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.builder cimport BuilderC
from lsmkv_ext.table.meta cimport TableMetaC
from lsmkv_ext.table.reader cimport TableC

ctypedef struct RebuildOptions:
    uint64_t seed                  # must be the table's, because the block tags stay (else ST_BAD_ARGUMENT)
    uint32_t millibits             # 0 = no filter
    uint32_t level
    bint verify_filter
    uint32_t prefix_kind, prefix_arg
    uint64_t number                # of the new file
    uint64_t created_unix

# Runs without the GIL. The new file is fsynced and closed, or removed on failure. `b` is the builder to use; afterwards it owns
# no memory, and its counters can be read.
cdef int rebuild_filter(TableC* t, const char* out_path, const RebuildOptions* o, BuilderC* b, TableMetaC* out,
                        Status* st) noexcept nogil
