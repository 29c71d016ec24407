# System calls on files. They retry EINTR and short transfers; descriptors are O_CLOEXEC and above 2; new files have mode
# 0600. Every function returns 0 or the errno, unless it says otherwise. Opening never waits.

from libc.stdint cimport uint64_t

cdef enum:
    OPEN_READ = 0
    OPEN_CREATE = 1     # O_CREAT | O_EXCL, read and write
    OPEN_WRITE = 2      # existing, read and write

cdef extern from "<sys/uio.h>" nogil:
    ctypedef struct iovec "struct iovec":
        void* iov_base
        size_t iov_len

cdef enum:
    ERR_NOT_REGULAR = -1    # from file_open: a directory, FIFO, socket or device, whose reads may wait or never end

cdef int file_open(const char* path, int mode, int* fd) noexcept nogil
cdef int file_close(int fd) noexcept nogil
cdef int file_pread(int fd, char* buf, size_t n, uint64_t offset, size_t* got) noexcept nogil   # short only at EOF
cdef int file_write(int fd, const char* buf, size_t n) noexcept nogil
cdef int file_pwrite(int fd, const char* buf, size_t n, uint64_t offset) noexcept nogil
# The same for n pieces of memory, one after the other in the file. They change `pieces`.
cdef int file_preadv(int fd, iovec* pieces, int n, uint64_t offset, size_t* got) noexcept nogil
# The same from the page cache alone: EAGAIN if it would wait for the disk, or where the system cannot tell.
cdef int file_preadv_cached(int fd, iovec* pieces, int n, uint64_t offset, size_t* got) noexcept nogil
# Starts reading into the page cache and returns. A hint: it may do nothing.
cdef void file_will_read(int fd, uint64_t offset, uint64_t n) noexcept nogil
cdef int file_pwritev(int fd, iovec* pieces, int n, uint64_t offset) noexcept nogil
cdef int file_sync(int fd) noexcept nogil            # fsync
cdef int file_datasync(int fd) noexcept nogil        # fdatasync
cdef int file_size(int fd, uint64_t* size) noexcept nogil
# Offset of the first data at or after `offset`, as far as the file system knows its holes; `size` where there is none.
cdef uint64_t file_next_data(int fd, uint64_t offset, uint64_t size) noexcept nogil
cdef int file_allocate(int fd, uint64_t offset, uint64_t n) noexcept nogil   # posix_fallocate
cdef int file_truncate(int fd, uint64_t size) noexcept nogil
cdef int file_sync_dir(const char* path) noexcept nogil


cdef class Descriptor:
    cdef readonly int fd        # -1: closed
