# From a file to a TableC: footer, properties, index, range tombstones, filter; all checked here, once. Errors name the
# offset of the section that is wrong.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.cache.block_cache cimport CacheC
from lsmkv_ext.cache.fd_cache cimport FdCacheC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.table cimport TableC

# n bytes of the file; a file that ends before is ST_CORRUPT.
cdef int table_pread(TableC* t, char* buf, size_t n, uint64_t offset, Status* st) noexcept nogil
# Checks a framed section's checksum and sizes; *raw_size is then safe to allocate, *compression is known.
cdef int frame_check(TableC* t, const char* frame, size_t n, int kind, uint64_t offset, uint32_t* raw_size,
                     int* compression, Status* st) noexcept nogil
# Decompresses or copies the checked frame into `raw` (raw_size bytes).
cdef int frame_unpack(TableC* t, const char* frame, size_t n, uint32_t raw_size, int compression, char* raw,
                      uint64_t offset, Status* st) noexcept nogil
# A number among the raw properties, 0 where it is missing.
cdef uint64_t table_prop(const TableC* t, int id) noexcept nogil
cdef int table_open(TableC* t, char* path, CacheC* cache, FdCacheC* fds, uint64_t number, uint64_t global_seq,
                    bint charge, Status* st) noexcept nogil
cdef void table_close(TableC* t) noexcept nogil
