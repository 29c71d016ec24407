from libc.errno cimport EAGAIN, EBADF, EINTR, EISDIR, ENODEV, ENXIO, errno

cdef extern from "<fcntl.h>" nogil:
    int c_open "open" (const char* path, int flags, ...)
    int fcntl(int fd, int cmd, ...)
    int posix_fallocate(int fd, long offset, long n)
    int posix_fadvise(int fd, long offset, long n, int advice)
    int POSIX_FADV_WILLNEED
    int O_RDONLY, O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC, O_DIRECTORY, O_NONBLOCK, F_DUPFD_CLOEXEC, F_GETFD

cdef extern from "<unistd.h>" nogil:
    int c_close "close" (int fd)
    ssize_t pread(int fd, void* buf, size_t n, long offset)
    ssize_t c_write "write" (int fd, const void* buf, size_t n)
    ssize_t pwrite(int fd, const void* buf, size_t n, long offset)
    int fsync(int fd)
    int ftruncate(int fd, long size)
    int fdatasync(int fd)
    long lseek(int fd, long offset, int whence)
    int SEEK_DATA

cdef extern from "<sys/uio.h>" nogil:
    ssize_t preadv(int fd, const iovec* pieces, int n, long offset)
    ssize_t pwritev(int fd, const iovec* pieces, int n, long offset)
    ssize_t preadv2(int fd, const iovec* pieces, int n, long offset, int flags)

cdef extern from *:
    """
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 8
    #endif
    """
    const int RWF_NOWAIT

cdef extern from "<sys/stat.h>" nogil:
    cdef struct stat_t "stat":
        long st_size
        unsigned int st_mode
    int fstat(int fd, stat_t* st)
    int S_ISREG(unsigned int mode)


cdef void _occupy_standard_streams() noexcept nogil:
    # If a file got descriptor 0 to 2, even for a moment, another thread's print could go to it. So a closed standard stream
    # becomes /dev/null, for good: closing it later could close a file that the program opened since.
    cdef int stream, got
    for stream in range(3):
        if fcntl(stream, F_GETFD) < 0 and errno == EBADF:
            got = c_open(b"/dev/null", O_RDWR | O_CLOEXEC)
            if got > 2:
                c_close(got)


def occupy_standard_streams():
    """Open /dev/null wherever descriptor 0, 1 or 2 is free: no file of a database gets that number."""
    _occupy_standard_streams()


cdef int _open_flags(const char* path, int flags, int* fd) noexcept nogil:
    cdef int got, moved, err
    _occupy_standard_streams()
    while True:
        got = c_open(path, flags | O_CLOEXEC, 0o600)
        if got >= 0:
            break
        if errno != EINTR:
            return errno
    if got <= 2:
        # Another thread closed a stream meanwhile, or there is no /dev/null.
        moved = fcntl(got, F_DUPFD_CLOEXEC, 3)
        err = errno
        c_close(got)
        if moved < 0:
            return err
        got = moved
    fd[0] = got
    return 0


cdef int _open_regular(const char* path, int flags, int* fd) noexcept nogil:
    cdef stat_t st
    # A FIFO opened without O_NONBLOCK waits for its other end.
    cdef int err = _open_flags(path, flags | O_NONBLOCK, fd)
    if err == EISDIR or err == ENXIO or err == ENODEV:
        return ERR_NOT_REGULAR
    if err != 0:
        return err
    if fstat(fd[0], &st) != 0:
        err = errno
    elif not S_ISREG(st.st_mode):
        err = ERR_NOT_REGULAR
    if err != 0:
        c_close(fd[0])
        fd[0] = -1
    return err


cdef int file_open(const char* path, int mode, int* fd) noexcept nogil:
    if mode == OPEN_READ:
        return _open_regular(path, O_RDONLY, fd)
    if mode == OPEN_CREATE:
        return _open_flags(path, O_RDWR | O_CREAT | O_EXCL, fd)
    return _open_regular(path, O_RDWR, fd)


cdef int file_close(int fd) noexcept nogil:
    # Linux frees the descriptor even when close returns EINTR, so it is never retried.
    if c_close(fd) != 0 and errno != EINTR:
        return errno
    return 0


cdef int file_pread(int fd, char* buf, size_t n, uint64_t offset, size_t* got) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t r
    while done < n:
        r = pread(fd, buf + done, n - done, <long>(offset + done))
        if r < 0:
            if errno == EINTR:
                continue
            got[0] = done
            return errno
        if r == 0:
            break
        done += r
    got[0] = done
    return 0


cdef int file_write(int fd, const char* buf, size_t n) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t r
    while done < n:
        r = c_write(fd, buf + done, n - done)
        if r < 0:
            if errno == EINTR:
                continue
            return errno
        done += r
    return 0


cdef int file_pwrite(int fd, const char* buf, size_t n, uint64_t offset) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t r
    while done < n:
        r = pwrite(fd, buf + done, n - done, <long>(offset + done))
        if r < 0:
            if errno == EINTR:
                continue
            return errno
        done += r
    return 0


cdef void _advance(iovec** pieces, int* n, size_t done) noexcept nogil:
    """Takes the first `done` bytes off the pieces."""
    while n[0] and done >= pieces[0].iov_len:
        done -= pieces[0].iov_len
        pieces[0] += 1
        n[0] -= 1
    if n[0]:
        pieces[0].iov_base = <char*>pieces[0].iov_base + done
        pieces[0].iov_len -= done


cdef int file_preadv(int fd, iovec* pieces, int n, uint64_t offset, size_t* got) noexcept nogil:
    cdef ssize_t r
    got[0] = 0
    _advance(&pieces, &n, 0)
    while n:
        r = preadv(fd, pieces, n, <long>(offset + got[0]))
        if r < 0:
            if errno == EINTR:
                continue
            return errno
        if r == 0:
            break
        got[0] += r
        _advance(&pieces, &n, r)
    return 0


cdef int file_preadv_cached(int fd, iovec* pieces, int n, uint64_t offset, size_t* got) noexcept nogil:
    cdef ssize_t r = preadv2(fd, pieces, n, <long>offset, RWF_NOWAIT)
    got[0] = 0
    if r < 0:
        return EAGAIN
    got[0] = r
    return 0


cdef void file_will_read(int fd, uint64_t offset, uint64_t n) noexcept nogil:
    posix_fadvise(fd, <long>offset, <long>n, POSIX_FADV_WILLNEED)


cdef int file_pwritev(int fd, iovec* pieces, int n, uint64_t offset) noexcept nogil:
    cdef ssize_t r
    _advance(&pieces, &n, 0)
    while n:
        r = pwritev(fd, pieces, n, <long>offset)
        if r < 0:
            if errno == EINTR:
                continue
            return errno
        offset += r
        _advance(&pieces, &n, r)
    return 0


cdef int file_sync(int fd) noexcept nogil:
    # After EINTR the pages are still dirty, so a retry is sound. After any other error they may be dropped: never retry.
    while fsync(fd) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int file_datasync(int fd) noexcept nogil:
    while fdatasync(fd) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int file_size(int fd, uint64_t* size) noexcept nogil:
    cdef stat_t st
    if fstat(fd, &st) != 0:
        return errno
    size[0] = <uint64_t>st.st_size
    return 0


cdef uint64_t file_next_data(int fd, uint64_t offset, uint64_t size) noexcept nogil:
    cdef long at
    if offset >= size:
        return size
    at = lseek(fd, <long>offset, SEEK_DATA)
    if at < 0:
        # ENXIO: no more data. Otherwise the file system does not know, and any byte may be data.
        return size if errno == ENXIO else offset
    return min(<uint64_t>at, size)


cdef int file_allocate(int fd, uint64_t offset, uint64_t n) noexcept nogil:
    cdef int r
    while True:
        r = posix_fallocate(fd, <long>offset, <long>n)
        if r != EINTR:
            return r


cdef int file_truncate(int fd, uint64_t size) noexcept nogil:
    while ftruncate(fd, <long>size) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int file_sync_dir(const char* path) noexcept nogil:
    cdef int fd
    cdef int err = _open_flags(path, O_RDONLY | O_DIRECTORY, &fd)
    if err != 0:
        return err
    err = file_sync(fd)
    c_close(fd)
    return err


cdef class Descriptor:
    """A file descriptor that the object owns."""

    def __cinit__(self, int fd):
        self.fd = fd

    def close(self):
        """Close it. Twice is no error. Allocates nothing, so a full memory cannot keep it open."""
        cdef int fd = self.fd
        self.fd = -1
        if fd >= 0:
            file_close(fd)

    def __dealloc__(self):
        if self.fd >= 0:
            file_close(self.fd)
