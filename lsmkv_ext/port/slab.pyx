"""Memory for cached blocks."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from lsmkv_ext.port.pages cimport HUGE_PAGE, lsm_map_aligned, lsm_unmap_pages
from lsmkv_ext.port.pthread cimport (
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef enum:
    HEADER = 128                   # bytes of a region in front of its slots
    N_CLASSES = 64

ctypedef struct Region:
    void* freed                    # free slots that were used before, chained by their first word
    Region* next                   # regions of the class that have room
    Region* prev
    uint32_t cls
    uint32_t slots
    uint32_t fresh                 # slots from here on were never used
    uint32_t used

ctypedef struct Pool:
    pthread_mutex_t lock
    Region* room[N_CLASSES]
    Region* spare                  # empty regions, chained by next
    uint64_t spares
    int64_t budget                 # bytes
    uint64_t regions
    uint64_t slots

cdef Pool pool
cdef size_t[N_CLASSES] SIZES
cdef int n_classes = 0


cdef void _lock() noexcept nogil:
    pthread_mutex_lock(&pool.lock)


cdef void _unlock() noexcept nogil:
    pthread_mutex_unlock(&pool.lock)


cdef void _start() noexcept:
    """Makes size classes a sixteenth apart: a slot wastes at most 6 %."""
    global n_classes
    cdef size_t size = 512
    memset(&pool, 0, sizeof(Pool))
    pthread_mutex_init(&pool.lock, NULL)
    # Without this, a lock held by another thread during a fork would stay locked in the child.
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
        r = <Region*>lsm_map_aligned(HUGE_PAGE, HUGE_PAGE)
        if r == NULL:
            return NULL
        pool.regions += 1
    memset(r, 0, HEADER)
    r.cls = <uint32_t>cls
    r.slots = <uint32_t>((HUGE_PAGE - HEADER) // SIZES[cls])
    _link(r)
    return r


cdef void _trim() noexcept nogil:
    """Unmaps spare regions beyond the budget, except one: a full cache frees and allocates in turn."""
    cdef Region* r
    while pool.spares > 1 and <int64_t>(pool.regions * HUGE_PAGE) > pool.budget:
        r = pool.spare
        pool.spare = r.next
        pool.spares -= 1
        pool.regions -= 1
        lsm_unmap_pages(r, HUGE_PAGE)


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
    cdef Region* r = <Region*>(<size_t>p & ~<size_t>(HUGE_PAGE - 1))
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


def stats():
    """Return what the process holds for cached blocks: regions, their bytes, and slots in use."""
    cdef uint64_t regions, slots
    with nogil:
        _lock()
        regions = pool.regions
        slots = pool.slots
        _unlock()
    return {"regions": regions, "region_bytes": regions * HUGE_PAGE, "slots": slots}
