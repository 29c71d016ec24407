from libc.errno cimport EMFILE, ENFILE, ENOENT
from libc.stdlib cimport calloc, free

from lsmkv_ext.port.file cimport OPEN_READ, file_close, file_open, file_pread, file_size
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.atomics cimport lsm_fetch_add32, lsm_load32, lsm_store32
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

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
    RETRIES = 2000                 # x 1 ms: descriptors in use come back when their read is done


cdef void _link(FdCacheC* p, FdHandle* h) noexcept nogil:
    if p.hand == NULL:
        h.next = h
        h.prev = h
        p.hand = h
    else:
        h.next = p.hand
        h.prev = p.hand.prev
        h.prev.next = h
        h.next.prev = h
    lsm_store32(&p.n_open, p.n_open + 1)


cdef void _unlink(FdCacheC* p, FdHandle* h) noexcept nogil:
    if h.next == h:
        p.hand = NULL
    else:
        h.prev.next = h.next
        h.next.prev = h.prev
        if p.hand == h:
            p.hand = h.next
    h.next = NULL
    h.prev = NULL
    lsm_store32(&p.n_open, p.n_open - 1)


cdef bint _take(FdHandle* h, int* fd) noexcept nogil:
    """The descriptor of a handle that nobody uses. A reader counts itself in and then looks at fd; here it is the other
    way round, so one of the two sees the other."""
    fd[0] = h.fd
    lsm_store32(&h.fd, -1)
    if lsm_fetch_add32(&h.users, 0) == 0:
        return True
    lsm_store32(&h.fd, fd[0])
    return False


cdef bint _close_one(FdCacheC* p) noexcept nogil:
    cdef int left = 2 * p.n_open
    cdef int fd = -1
    cdef FdHandle* h
    while left > 0:
        left -= 1
        h = p.hand
        if not lsm_load32(&h.used) and _take(h, &fd):
            _unlink(p, h)
            file_close(fd)         # read-only: closing has nothing to report
            return True
        lsm_store32(&h.used, 0)
        p.hand = h.next
    return False


cdef int fd_cache_init(FdCacheC* p, int limit) noexcept nogil:
    cdef rlimit process
    p.limit = limit
    # Logs, new tables and the rest of the program need descriptors too: half of the process's at most.
    if getrlimit(RLIMIT_NOFILE, &process) == 0 and <rlim_t>p.limit > process.rlim_cur // 2:
        p.limit = <int>(process.rlim_cur // 2)
    if p.limit < 1:
        p.limit = 1
    return pthread_mutex_init(&p.lock, NULL)


cdef void fd_cache_destroy(FdCacheC* p) noexcept nogil:
    pthread_mutex_destroy(&p.lock)


cdef int fd_acquire(FdCacheC* p, FdHandle* h, int* fd) noexcept nogil:
    lsm_fetch_add32(&h.users, 1)
    fd[0] = lsm_load32(&h.fd)
    if fd[0] >= 0:
        lsm_store32(&h.used, 1)
        return 0
    return _open_counted(p, h, fd)


cdef int _recognise(FdHandle* h, int fd) noexcept nogil:
    """0 where it is the file that the handle had before, or its first one; ENOENT for another."""
    cdef char tail[TAIL]
    cdef uint64_t size, found
    cdef size_t got = 0
    cdef int err = file_size(fd, &size)
    if err == 0:
        err = file_pread(fd, tail, TAIL, size - TAIL if size > TAIL else 0, &got)
    if err:
        return err
    found = xxh3(tail, got, size)
    if h.seen and found != h.print:
        return ENOENT
    h.seen = True
    h.print = found
    return 0


cdef int _open_counted(FdCacheC* p, FdHandle* h, int* fd) noexcept nogil:
    """The handle was closed (or about to be) while its user was already counted in."""
    cdef int err = 0
    cdef int tries = 0
    cdef int opened = -1
    pthread_mutex_lock(&p.lock)
    while h.fd < 0:
        if p.n_open >= p.limit:
            _close_one(p)
        err = file_open(h.path, OPEN_READ, &opened)
        if err == 0:
            err = _recognise(h, opened)
            if err:
                file_close(opened)
                break
            lsm_store32(&h.fd, opened)
            _link(p, h)
            break
        if err != EMFILE and err != ENFILE:
            break
        if _close_one(p):
            continue
        tries += 1
        if tries > RETRIES:
            break
        pthread_mutex_unlock(&p.lock)
        usleep(1000)
        pthread_mutex_lock(&p.lock)
        err = 0
    fd[0] = h.fd
    if fd[0] >= 0:
        err = 0
        lsm_store32(&h.used, 1)
    else:
        lsm_fetch_add32(&h.users, -1)
    pthread_mutex_unlock(&p.lock)
    return err


cdef void fd_release(FdCacheC* p, FdHandle* h) noexcept nogil:
    lsm_fetch_add32(&h.users, -1)
    if lsm_load32(&p.n_open) <= p.limit:
        return
    pthread_mutex_lock(&p.lock)
    while p.n_open > p.limit and _close_one(p):
        pass
    pthread_mutex_unlock(&p.lock)


cdef void fd_forget(FdCacheC* p, FdHandle* h) noexcept nogil:
    pthread_mutex_lock(&p.lock)
    if h.fd >= 0:
        _unlink(p, h)
        file_close(h.fd)
        h.fd = -1
    pthread_mutex_unlock(&p.lock)


cdef class FdCache:
    """At most `limit` descriptors of tables open at once, and never more than half of RLIMIT_NOFILE."""

    def __cinit__(self, int limit):
        self.p = <FdCacheC*>calloc(1, sizeof(FdCacheC))
        if self.p == NULL or fd_cache_init(self.p, limit) != 0:
            raise MemoryError("descriptor pool")

    def __dealloc__(self):
        if self.p != NULL:
            fd_cache_destroy(self.p)
            free(self.p)

    @property
    def limit(self):
        return self.p.limit

    @property
    def n_open(self):
        return self.p.n_open
