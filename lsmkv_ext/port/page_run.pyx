"""Runs of pages for filters."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from lsmkv_ext.port.pages cimport CACHE_LINE, PAGE, lsm_map_aligned, lsm_unmap_pages
from lsmkv_ext.port.pthread cimport (
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** out, size_t alignment, size_t size)

cdef enum:
    REGION = 16 << 20
    REGION_PAGES = REGION // PAGE
    HEADER_PAGES = 2               # of them the region itself takes
    SMALLEST = 1024                # bytes; smaller runs come from malloc
    FIRST_BYTES = 64 * 1024        # that all come from malloc

ctypedef struct Region:            # at the start of its own memory
    Region* next
    uint32_t used                  # pages
    uint8_t taken[REGION_PAGES]

# The lock guards both.
cdef pthread_mutex_t mutex
cdef Region* regions = NULL
cdef uint64_t bytes_used = 0       # by runs, those from malloc included


cdef void _lock() noexcept nogil:
    pthread_mutex_lock(&mutex)


cdef void _unlock() noexcept nogil:
    pthread_mutex_unlock(&mutex)


pthread_mutex_init(&mutex, NULL)
# Without this, a lock held by another thread during a fork would stay locked in the child.
pthread_atfork(_lock, _unlock, _unlock)


cdef uint32_t _find_run(const Region* r, uint32_t pages) noexcept nogil:
    """First page of the first gap of `pages` pages, or 0."""
    cdef uint32_t free_pages = 0
    cdef int i
    for i in range(HEADER_PAGES, REGION_PAGES):
        free_pages = 0 if r.taken[i] else free_pages + 1
        if free_pages == pages:
            return <uint32_t>i + 1 - pages
    return 0


cdef void* _take_run(uint32_t pages) noexcept nogil:
    cdef Region* r = regions
    cdef uint32_t at = 0
    global regions
    while r != NULL:
        at = _find_run(r, pages)
        if at:
            break
        r = r.next
    if r == NULL:
        r = <Region*>lsm_map_aligned(REGION, REGION)
        if r == NULL:
            return NULL
        r.next = regions
        regions = r
        at = HEADER_PAGES
    memset(&r.taken[at], 1, pages)
    r.used += pages
    return <char*>r + <size_t>at * PAGE


cdef bint _give_run(void* p, uint32_t pages) noexcept nogil:
    """False if no region holds the run: it came from malloc."""
    cdef Region* wanted = <Region*>(<size_t>p & ~<size_t>(REGION - 1))
    cdef Region** link = &regions
    while link[0] != NULL and link[0] != wanted:
        link = &link[0].next
    if link[0] == NULL:
        return False
    memset(&wanted.taken[(<size_t>p - <size_t>wanted) // PAGE], 0, pages)
    wanted.used -= pages
    if wanted.used == 0:
        link[0] = wanted.next
        lsm_unmap_pages(wanted, REGION)
    return True


cdef inline uint32_t _pages(size_t n) noexcept nogil:
    return <uint32_t>((n + PAGE - 1) // PAGE)


cdef void* page_run_alloc(size_t n) noexcept nogil:
    cdef void* p = NULL
    global bytes_used
    _lock()
    bytes_used += n
    if SMALLEST <= n <= <size_t>(REGION_PAGES - HEADER_PAGES) * PAGE and bytes_used > FIRST_BYTES:
        p = _take_run(_pages(n))
    _unlock()
    if p == NULL and posix_memalign(&p, CACHE_LINE, n if n else 1) != 0:
        _lock()
        bytes_used -= n
        _unlock()
        return NULL
    return p


cdef void page_run_free(void* p, size_t n) noexcept nogil:
    cdef bint given
    global bytes_used
    if p == NULL:
        return
    _lock()
    bytes_used -= n
    given = n >= SMALLEST and _give_run(p, _pages(n))
    _unlock()
    if not given:
        free(p)


@cython.final
cdef class PageRun:
    """A run of n bytes, for tests."""

    cdef void* p
    cdef readonly size_t n

    def __cinit__(self, size_t n):
        self.p = page_run_alloc(n)
        self.n = n
        if self.p == NULL:
            raise MemoryError("page run")
        memset(self.p, 0xFF, n)

    @property
    def address(self):
        """Address of the first byte."""
        return <size_t>self.p

    def __dealloc__(self):
        page_run_free(self.p, self.n)


def stats():
    """Return what the process holds for filters: regions, and bytes of runs, those from malloc included."""
    cdef uint64_t count = 0
    cdef uint64_t used
    cdef Region* r
    with nogil:
        _lock()
        used = bytes_used
        r = regions
        while r != NULL:
            count += 1
            r = r.next
        _unlock()
    return {"regions": count, "bytes": used}
