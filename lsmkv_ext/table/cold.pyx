from lsmkv_ext.cache.fd_cache cimport fd_acquire, fd_release
from lsmkv_ext.port.atomics cimport lsm_load_ptr
from lsmkv_ext.port.file cimport file_will_read


cdef void table_start_block(TableC* t, uint32_t i) noexcept nogil:
    cdef int fd = -1
    if i >= t.n_blocks or lsm_load_ptr(<void**>&t.blocks[i]) != NULL:
        return
    if t.fds == NULL or fd_acquire(t.fds, &t.handle, &fd) != 0:
        return
    file_will_read(fd, t.offsets[i], t.offsets[i + 1] - t.offsets[i])
    fd_release(t.fds, &t.handle)
