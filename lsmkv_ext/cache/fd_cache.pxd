# Descriptors on demand: at most `limit` open over all tables of a database, so 1000 tables work under RLIMIT_NOFILE=40.
# A handle is closed by the clock hand when another needs its place, and opened again by its path when next used; if there
# is another file by then (a database made anew in the same place), that is ENOENT. The limit bends while more threads than
# that read at once; EMFILE closes somebody else's and tries again.

from libc.stdint cimport uint64_t
from lsmkv_ext.port.pthread cimport pthread_mutex_t

ctypedef struct FdHandle:
    char* path                     # borrowed from the table; absolute
    int fd                         # -1 = closed; changes under the pool's lock, read without
    int users                      # atomic
    int used                       # for the clock; atomic
    bint seen                      # it was open before, and the file was this one:
    uint64_t print                 # of its size and its last bytes
    FdHandle* next                 # ring of open handles
    FdHandle* prev

ctypedef struct FdCacheC:
    pthread_mutex_t lock
    int limit
    int n_open                     # changes under the lock, read without
    FdHandle* hand

# The limit is cut to half of RLIMIT_NOFILE.
cdef int fd_cache_init(FdCacheC* p, int limit) noexcept nogil
cdef void fd_cache_destroy(FdCacheC* p) noexcept nogil
# 0 or the errno; *fd stays open until fd_release.
cdef int fd_acquire(FdCacheC* p, FdHandle* h, int* fd) noexcept nogil
cdef void fd_release(FdCacheC* p, FdHandle* h) noexcept nogil
cdef void fd_forget(FdCacheC* p, FdHandle* h) noexcept nogil      # closes it for good; no users left


cdef class FdCache:
    cdef FdCacheC* p
