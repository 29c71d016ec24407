"""The descriptor cache."""

import os

from libc.errno cimport EMFILE, ENFILE, ENOENT, errno
from libc.stdlib cimport calloc, free

from lsmkv_ext.port.atomics cimport lsm_fetch_add32, lsm_load32, lsm_store32
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.file cimport OPEN_READ, file_close, file_open, file_pread, file_size
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

from lsmkv_ext.errors import IOError as LsmIOError

cdef extern from "<fcntl.h>" nogil:
    int F_DUPFD_CLOEXEC
    int fcntl(int fd, int command, int argument)

cdef extern from "<sys/resource.h>" nogil:
    ctypedef unsigned long rlim_t
    struct rlimit:
        rlim_t rlim_cur
    int RLIMIT_NOFILE
    int getrlimit(int resource, rlimit* out)

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int usec)

cdef enum:
    TAIL = 512                     # bytes that tell tables apart: the footer, the checksum of the properties
    HEAD = 64                      # bytes that tell value logs apart
    RETRIES = 2000                 # x 1 ms: a descriptor in use is free again after the read


cdef void _link(FdCacheC* c, FdHandle* h) noexcept nogil:
    if c.hand == NULL:
        h.next = h
        h.prev = h
        c.hand = h
    else:
        h.next = c.hand
        h.prev = c.hand.prev
        h.prev.next = h
        h.next.prev = h
    lsm_store32(&c.n_open, c.n_open + 1)


cdef void _unlink(FdCacheC* c, FdHandle* h) noexcept nogil:
    if h.next == h:
        c.hand = NULL
    else:
        h.prev.next = h.next
        h.next.prev = h.prev
        if c.hand == h:
            c.hand = h.next
    h.next = NULL
    h.prev = NULL
    lsm_store32(&c.n_open, c.n_open - 1)


cdef bint _take(FdHandle* h, int* fd) noexcept nogil:
    """Takes the descriptor from a handle. False if the handle is in use."""
    fd[0] = h.fd
    lsm_store32(&h.fd, -1)
    if lsm_fetch_add32(&h.users, 0) == 0:
        return True
    lsm_store32(&h.fd, fd[0])
    return False


cdef bint _close_one(FdCacheC* c) noexcept nogil:
    cdef int left = 2 * c.n_open
    cdef int fd = -1
    cdef FdHandle* h
    while left > 0:
        left -= 1
        h = c.hand
        if not lsm_load32(&h.used) and _take(h, &fd):
            _unlink(c, h)
            file_close(fd)         # read-only: no error to report
            return True
        lsm_store32(&h.used, 0)
        c.hand = h.next
    return False


cdef int fd_cache_init(FdCacheC* c, int limit) noexcept nogil:
    cdef rlimit process
    c.limit = limit
    # Logs, new tables and the rest of the program need descriptors too.
    if getrlimit(RLIMIT_NOFILE, &process) == 0 and <rlim_t>c.limit > process.rlim_cur // 2:
        c.limit = <int>(process.rlim_cur // 2)
    if c.limit < 1:
        c.limit = 1
    return pthread_mutex_init(&c.lock, NULL)


cdef void fd_cache_destroy(FdCacheC* c) noexcept nogil:
    pthread_mutex_destroy(&c.lock)


cdef int fd_acquire(FdCacheC* c, FdHandle* h, int* fd) noexcept nogil:
    lsm_fetch_add32(&h.users, 1)
    fd[0] = lsm_load32(&h.fd)
    if fd[0] >= 0:
        lsm_store32(&h.used, 1)
        return 0
    return _open_counted(c, h, fd)


cdef int _check_same_file(FdHandle* h, int fd) noexcept nogil:
    """0 for the first file of the handle or the same file as before; ENOENT for another file; or an errno."""
    cdef char tail[TAIL]
    cdef uint64_t size, found
    cdef size_t got = 0
    cdef int err = file_size(fd, &size)
    if err == 0 and h.grows:
        size = 0
        err = file_pread(fd, tail, HEAD, 0, &got)
    elif err == 0:
        err = file_pread(fd, tail, TAIL, size - TAIL if size > TAIL else 0, &got)
    if err:
        return err
    found = xxh3(tail, got, size)
    if h.seen and found != h.fingerprint:
        return ENOENT
    h.seen = True
    h.fingerprint = found
    return 0


cdef int _open_counted(FdCacheC* c, FdHandle* h, int* fd) noexcept nogil:
    """Opens a handle that is closed, or about to be; its user is already counted."""
    cdef int err = 0
    cdef int tries = 0
    cdef int opened = -1
    pthread_mutex_lock(&c.lock)
    while h.fd < 0:
        if c.n_open >= c.limit:
            _close_one(c)
        err = file_open(h.path, OPEN_READ, &opened)
        if err == 0:
            err = _check_same_file(h, opened)
            if err:
                file_close(opened)
                break
            lsm_store32(&h.fd, opened)
            _link(c, h)
            break
        if err != EMFILE and err != ENFILE:
            break
        if _close_one(c):
            continue
        tries += 1
        if tries > RETRIES:
            break
        pthread_mutex_unlock(&c.lock)
        usleep(1000)
        pthread_mutex_lock(&c.lock)
        err = 0
    fd[0] = h.fd
    if fd[0] >= 0:
        err = 0
        lsm_store32(&h.used, 1)
    else:
        lsm_fetch_add32(&h.users, -1)
    pthread_mutex_unlock(&c.lock)
    return err


cdef void fd_release(FdCacheC* c, FdHandle* h) noexcept nogil:
    lsm_fetch_add32(&h.users, -1)
    if lsm_load32(&c.n_open) <= c.limit:
        return
    pthread_mutex_lock(&c.lock)
    while c.n_open > c.limit and _close_one(c):
        pass
    pthread_mutex_unlock(&c.lock)


cdef int fd_duplicate(FdCacheC* c, FdHandle* h) except -1:
    cdef int fd = h.fd
    cdef int copy = -1
    cdef int err = 0
    with nogil:
        if c != NULL:
            err = fd_acquire(c, h, &fd)
        if err == 0:
            copy = fcntl(fd, F_DUPFD_CLOEXEC, 3)
            err = errno if copy < 0 else 0
            if c != NULL:
                fd_release(c, h)
    if err:
        raise LsmIOError(err, f"opening: {os.strerror(err)}", os.fsdecode(h.path))
    return copy


cdef void fd_forget(FdCacheC* c, FdHandle* h) noexcept nogil:
    pthread_mutex_lock(&c.lock)
    if h.fd >= 0:
        _unlink(c, h)
        file_close(h.fd)
        h.fd = -1
    pthread_mutex_unlock(&c.lock)


cdef class FdCache:
    """At most `limit` open descriptors of tables, and never more than half of RLIMIT_NOFILE."""

    def __cinit__(self, int limit):
        self.c = <FdCacheC*>calloc(1, sizeof(FdCacheC))
        if self.c == NULL or fd_cache_init(self.c, limit) != 0:
            raise MemoryError("descriptor cache")

    def __dealloc__(self):
        if self.c != NULL:
            fd_cache_destroy(self.c)
            free(self.c)

    @property
    def limit(self):
        """Descriptors that may be open."""
        return self.c.limit

    @property
    def n_open(self):
        """Descriptors that are open."""
        return self.c.n_open
