cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from lsmkv_ext.port.pthread cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <sys/mman.h>
    #define LSM_REGION ((size_t)2 << 20)
    #define LSM_RUN_REGION ((size_t)16 << 20)
    /* n bytes aligned to n, or NULL: twice as much is mapped, and what stands over is given back */
    static void* lsm_map_region(size_t n) {
        char* p = (char*)mmap(NULL, 2 * n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == (char*)MAP_FAILED) return NULL;
        char* at = (char*)(((uintptr_t)p + n - 1) & ~(uintptr_t)(n - 1));
        if (at > p) munmap(p, (size_t)(at - p));
        munmap(at + n, (size_t)(p + n - at));
    #ifdef MADV_HUGEPAGE
        (void)!madvise(at, n, MADV_HUGEPAGE);
    #endif
        return at;
    }
    static void lsm_unmap_region(void* p, size_t n) { munmap(p, n); }
    """
    const size_t LSM_REGION
    const size_t LSM_RUN_REGION
    void* lsm_map_region(size_t n) noexcept
    void lsm_unmap_region(void* p, size_t n) noexcept
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil) noexcept

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** out, size_t alignment, size_t size)
    void free(void* p)

cdef enum:
    HEADER = 128                   # bytes of a region in front of its slots
    N_CLASSES = 64
    RUN_PAGE = 4096
    RUN_PAGES = 4096               # of a region of runs, with those of its header
    RUN_HEADER_PAGES = 2
    RUN_MIN = 1024
    RUN_FROM = 64 * 1024           # bytes in use before runs come from huge pages
    LINE = 64

ctypedef struct Region:
    void* freed                    # slots given back, chained by their first word
    Region* next                   # regions of the class that have room
    Region* prev
    uint32_t cls
    uint32_t slots
    uint32_t fresh                 # slots never handed out start here
    uint32_t used

ctypedef struct Pool:
    pthread_mutex_t lock
    Region* room[N_CLASSES]
    Region* spare                  # empty ones, chained by next
    uint64_t spares
    int64_t budget                 # bytes
    uint64_t regions
    uint64_t slots

ctypedef struct RunRegion:         # at its start
    RunRegion* next
    uint32_t used                  # pages
    uint8_t taken[RUN_PAGES]

cdef Pool pool
cdef RunRegion* run_regions = NULL      # both under the pool's lock
cdef uint64_t run_bytes = 0             # in use, from malloc too
cdef size_t[N_CLASSES] SIZES
cdef int n_classes = 0


cdef void _lock() noexcept nogil:
    pthread_mutex_lock(&pool.lock)


cdef void _unlock() noexcept nogil:
    pthread_mutex_unlock(&pool.lock)


cdef void _start() noexcept:
    """Classes a sixteenth apart: at most 6 % of a slot is wasted."""
    global n_classes
    cdef size_t size = 512
    memset(&pool, 0, sizeof(Pool))
    pthread_mutex_init(&pool.lock, NULL)
    # A child of fork must not find the lock held by a thread that it does not have.
    pthread_atfork(_lock, _unlock, _unlock)
    while size < SLAB_MAX and n_classes < N_CLASSES - 1:
        SIZES[n_classes] = size
        n_classes += 1
        size = (size + size // 16 + 63) & ~<size_t>63
    SIZES[n_classes] = SLAB_MAX
    n_classes += 1


_start()


cdef int _class_of(size_t n) noexcept nogil:
    cdef int low = 0
    cdef int high = n_classes - 1
    cdef int mid
    while low < high:
        mid = (low + high) // 2
        if SIZES[mid] < n:
            low = mid + 1
        else:
            high = mid
    return low


cdef void _link(Region* r) noexcept nogil:
    r.prev = NULL
    r.next = pool.room[r.cls]
    if r.next != NULL:
        r.next.prev = r
    pool.room[r.cls] = r


cdef void _unlink(Region* r) noexcept nogil:
    if r.prev != NULL:
        r.prev.next = r.next
    else:
        pool.room[r.cls] = r.next
    if r.next != NULL:
        r.next.prev = r.prev


cdef Region* _open_region(int cls) noexcept nogil:
    cdef Region* r = pool.spare
    if r != NULL:
        pool.spare = r.next
        pool.spares -= 1
    else:
        r = <Region*>lsm_map_region(LSM_REGION)
        if r == NULL:
            return NULL
        pool.regions += 1
    memset(r, 0, HEADER)
    r.cls = <uint32_t>cls
    r.slots = <uint32_t>((LSM_REGION - HEADER) // SIZES[cls])
    _link(r)
    return r


cdef void _trim() noexcept nogil:
    """One is kept whatever the budget: a cache at its limit frees and takes in turn."""
    cdef Region* r
    while pool.spares > 1 and <int64_t>(pool.regions * LSM_REGION) > pool.budget:
        r = pool.spare
        pool.spare = r.next
        pool.spares -= 1
        pool.regions -= 1
        lsm_unmap_region(r, LSM_REGION)


cdef void slab_budget(int64_t change) noexcept nogil:
    _lock()
    pool.budget += change
    _trim()
    _unlock()


cdef void* slab_alloc(size_t n, size_t* got) noexcept nogil:
    cdef int cls
    cdef Region* r
    cdef void* p
    if n > SLAB_MAX:
        return NULL
    cls = _class_of(n)
    got[0] = SIZES[cls]
    _lock()
    r = pool.room[cls]
    if r == NULL:
        r = _open_region(cls)
        if r == NULL:
            _unlock()
            return NULL
    if r.freed != NULL:
        p = r.freed
        r.freed = (<void**>p)[0]
    else:
        p = <char*>r + HEADER + <size_t>r.fresh * SIZES[cls]
        r.fresh += 1
    r.used += 1
    pool.slots += 1
    if r.used == r.slots:
        _unlink(r)
    _unlock()
    return p


cdef void slab_free(void* p) noexcept nogil:
    cdef Region* r = <Region*>(<size_t>p & ~(LSM_REGION - 1))
    _lock()
    if r.used == r.slots:
        _link(r)
    (<void**>p)[0] = r.freed
    r.freed = p
    r.used -= 1
    pool.slots -= 1
    if r.used == 0:
        _unlink(r)
        r.next = pool.spare
        pool.spare = r
        pool.spares += 1
        _trim()
    _unlock()


# --- runs of pages ----------------------------------------------------------------------------------------------------

cdef uint32_t _find_run(const RunRegion* r, uint32_t pages) noexcept nogil:
    """First page of the first gap of so many, or 0."""
    cdef uint32_t free_pages = 0
    cdef int i
    for i in range(RUN_HEADER_PAGES, RUN_PAGES):
        free_pages = 0 if r.taken[i] else free_pages + 1
        if free_pages == pages:
            return <uint32_t>i + 1 - pages
    return 0


cdef void* _take_run(uint32_t pages) noexcept nogil:
    cdef RunRegion* r = run_regions
    cdef uint32_t at = 0
    global run_regions
    while r != NULL:
        at = _find_run(r, pages)
        if at:
            break
        r = r.next
    if r == NULL:
        r = <RunRegion*>lsm_map_region(LSM_RUN_REGION)
        if r == NULL:
            return NULL
        r.next = run_regions
        run_regions = r
        at = RUN_HEADER_PAGES
    memset(&r.taken[at], 1, pages)
    r.used += pages
    return <char*>r + <size_t>at * RUN_PAGE


cdef bint _give_run(void* p, uint32_t pages) noexcept nogil:
    """False where no region holds it."""
    cdef RunRegion* wanted = <RunRegion*>(<size_t>p & ~(LSM_RUN_REGION - 1))
    cdef RunRegion** link = &run_regions
    while link[0] != NULL and link[0] != wanted:
        link = &link[0].next
    if link[0] == NULL:
        return False
    memset(&wanted.taken[(<size_t>p - <size_t>wanted) // RUN_PAGE], 0, pages)
    wanted.used -= pages
    if wanted.used == 0:
        link[0] = wanted.next
        lsm_unmap_region(wanted, LSM_RUN_REGION)
    return True


cdef inline uint32_t _pages(size_t n) noexcept nogil:
    return <uint32_t>((n + RUN_PAGE - 1) // RUN_PAGE)


cdef void* page_run_alloc(size_t n) noexcept nogil:
    cdef void* p = NULL
    global run_bytes
    _lock()
    run_bytes += n
    if RUN_MIN <= n <= <size_t>(RUN_PAGES - RUN_HEADER_PAGES) * RUN_PAGE and run_bytes > RUN_FROM:
        p = _take_run(_pages(n))
    _unlock()
    if p == NULL and posix_memalign(&p, LINE, n if n else 1) != 0:
        _lock()
        run_bytes -= n
        _unlock()
        return NULL
    return p


cdef void page_run_free(void* p, size_t n) noexcept nogil:
    cdef bint given
    global run_bytes
    if p == NULL:
        return
    _lock()
    run_bytes -= n
    given = n >= RUN_MIN and _give_run(p, _pages(n))
    _unlock()
    if not given:
        free(p)


@cython.final
cdef class Run:
    """n bytes of page_run_alloc's, for tests: where they are."""

    cdef void* p
    cdef readonly size_t n

    def __cinit__(self, size_t n):
        self.p = page_run_alloc(n)
        self.n = n
        if self.p == NULL:
            raise MemoryError("run")
        memset(self.p, 0xFF, n)

    @property
    def address(self):
        return <size_t>self.p

    def __dealloc__(self):
        page_run_free(self.p, self.n)


def stats():
    """What the process holds: regions of 2 MiB, slots in use; regions of runs, bytes of runs and of what is too small."""
    cdef RunRegion* r
    cdef uint64_t run_region_count = 0
    with nogil:
        _lock()
        r = run_regions
        while r != NULL:
            run_region_count += 1
            r = r.next
        _unlock()
    return {
        "regions": pool.regions,
        "region_bytes": pool.regions * LSM_REGION,
        "slots": pool.slots,
        "run_regions": run_region_count,
        "run_bytes": run_bytes,
    }
