from libc.stdlib cimport free, malloc

from lsmkv_ext.port.atomics cimport lsm_store_ptr
from lsmkv_ext.port.pages cimport lsm_map_large, lsm_unmap_pages


cdef ArenaChunk* chunk_new(size_t capacity) noexcept nogil:
    cdef ArenaChunk* chunk = <ArenaChunk*>malloc(sizeof(ArenaChunk))
    if chunk == NULL:
        return NULL
    # Not from the heap: the pages that an idle keyspace does not write to take no memory.
    chunk.base = <char*>lsm_map_large(capacity)
    if chunk.base == NULL:
        free(chunk)
        return NULL
    chunk.next = NULL
    chunk.capacity = capacity
    chunk.used = 0
    return chunk


cdef void chunks_free(ArenaChunk* first) noexcept nogil:
    cdef ArenaChunk* after
    while first != NULL:
        after = first.next
        lsm_unmap_pages(first.base, first.capacity)
        free(first)
        first = after


cdef int arena_grow(ArenaChunk** last, size_t n, size_t chunk_size) noexcept nogil:
    cdef ArenaChunk* chunk = chunk_new(n if n > chunk_size else chunk_size)
    if chunk == NULL:
        return -1
    lsm_store_ptr(<void**>&last[0].next, chunk)
    # Iterators read it while a large batch is written without the GIL.
    lsm_store_ptr(<void**>last, chunk)
    return 0
