# Opens tables and value logs on demand: at most `limit` descriptors per database, so 1000 tables work under RLIMIT_NOFILE=40.
#
# The cache closes an idle descriptor, chosen by CLOCK, when another table needs its place, and opens it again by path at its
# next use. If the path then names another file (a new database in the same directory), that use gets ENOENT. More threads that
# read at once may exceed the limit; after EMFILE the cache closes another descriptor and tries again.
#
# A user increments `users`, then reads `fd`; the cache sets `fd` to -1, then reads `users`. One of the two sees the other, so no
# descriptor is closed in use. Everything else changes under `lock`.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.atomics cimport lsm_load32, lsm_store32
from lsmkv_ext.port.pthread cimport pthread_mutex_t

ctypedef struct FdHandle:          # embedded in the table or value log
    char* path                     # borrowed from its owner; absolute
    int fd                         # -1 = closed; atomic, changes under the lock
    int users                      # atomic
    int used                       # since the hand came by; atomic
    bint seen                      # it was opened before, and `fingerprint` is set
    bint grows                     # the file may grow: its first bytes tell it apart, not its last
    uint64_t fingerprint           # of the file's size and last bytes; or of its first bytes
    FdHandle* next                 # ring of open handles
    FdHandle* prev

ctypedef struct FdCacheC:
    pthread_mutex_t lock
    int limit
    int n_open                     # atomic, changes under the lock
    FdHandle* hand
    int cold                       # reads from now on that are expected to wait for the disk; a hint, so lost updates are fine

# Cuts the limit to half of RLIMIT_NOFILE.
cdef int fd_cache_init(FdCacheC* c, int limit) noexcept nogil
cdef void fd_cache_destroy(FdCacheC* c) noexcept nogil
# Returns 0 or the errno; *fd stays open until fd_release.
cdef int fd_acquire(FdCacheC* c, FdHandle* h, int* fd) noexcept nogil
cdef void fd_release(FdCacheC* c, FdHandle* h) noexcept nogil
# A descriptor of the file for the caller, who closes it. With c NULL `h` has its own, which is open. Raises IOError.
cdef int fd_duplicate(FdCacheC* c, FdHandle* h) except -1
cdef void fd_forget(FdCacheC* c, FdHandle* h) noexcept nogil      # closes the descriptor for good; no users left


cdef enum:
    COLD_NS = 25000                # a read that took this long, and 2 bytes per ns, waited for the disk
    COLD_READS = 64                # so will these


cdef inline void fd_note_read(FdCacheC* c, uint64_t n, uint64_t ns) noexcept nogil:
    """After a read of n bytes that took `ns`."""
    cdef int cold = lsm_load32(&c.cold)
    if ns > COLD_NS + n // 2:
        if cold != COLD_READS:
            lsm_store32(&c.cold, COLD_READS)
    elif cold > 0:
        lsm_store32(&c.cold, cold - 1)


cdef class FdCache:
    cdef FdCacheC* c               # owned
