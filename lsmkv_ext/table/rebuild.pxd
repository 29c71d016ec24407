# Pays filter debt: copies the data blocks of a table byte for byte into a new file, with a filter for another level or another
# number of bits per key. Blocks are decompressed only to hash their keys; without a new filter they are not.

from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.builder cimport BuilderC, BuilderOptions
from lsmkv_ext.table.meta cimport TableMetaC
from lsmkv_ext.table.reader cimport TableC

# Runs without the GIL. The new file is fsynced and closed, or removed on failure. `o` has the wishes for the new filter and file;
# seed, block size, restart interval and compression come from the table, because its blocks stay. `b` is the builder to use;
# afterwards it owns no memory, and its counters can be read.
cdef int rebuild_filter(TableC* t, const char* out_path, BuilderOptions* o, BuilderC* b, TableMetaC* out,
                        Status* st) noexcept nogil
