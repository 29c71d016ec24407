# Opens a table: reads and checks footer, properties, index, range tombstones and filter, once. Errors name the offset of the
# section that is wrong.

from libc.stdint cimport uint64_t

from lsmkv_ext.cache.block_cache cimport CacheC
from lsmkv_ext.cache.fd_cache cimport FdCacheC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.reader cimport TableC

# `path` is borrowed until table_close. `charge`: reserve the table's memory in the cache's budget. `own_log`: the value log of an
# ingested table, whose pointers and properties then have its number; 0: they keep the 0. On failure *t is closed.
cdef int table_open(TableC* t, char* path, CacheC* cache, FdCacheC* fds, uint64_t number, uint64_t global_seq,
                    uint64_t own_log, bint charge, Status* st) noexcept nogil
cdef void table_close(TableC* t) noexcept nogil            # GIL held, if blocks may be cached; handle.fd is -1 if never opened
