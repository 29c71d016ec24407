# The arena of a memtable: chunks of memory to which entries are appended.
#
# The memtable owns the chunks and frees them when it ends. One writer appends; any number of readers walk the chunks without a
# lock. An entry is complete before `used` covers it (release) and never moves or changes afterwards. The arena holds only
# entries, so it can be walked from its first byte.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.port.compare cimport lsm_compare

ctypedef struct MemEntry:       # key and value follow, padded to 8 bytes; the value with its expiry, if it has one
    MemEntry* older             # the version of this key that it replaced, or NULL
    uint64_t hash
    uint64_t seq
    uint32_t vlen
    uint32_t klen_kind          # key length << 8 | kind (ENTRY_*)

ctypedef struct ArenaChunk:
    ArenaChunk* next
    char* base
    size_t capacity
    size_t used                 # stored with release: readers walk up to here

cdef ArenaChunk* chunk_new(size_t capacity) noexcept nogil
cdef void chunks_free(ArenaChunk* first) noexcept nogil
# Appends a chunk of at least n bytes and makes it *last. Returns 0, or -1 if out of memory.
cdef int arena_grow(ArenaChunk** last, size_t n, size_t chunk_size) noexcept nogil


cdef inline int arena_reserve(ArenaChunk** last, size_t n, size_t chunk_size) noexcept nogil:
    """Makes room for n bytes at the end of the last chunk. Returns 0, or -1 if out of memory."""
    if last[0].capacity - last[0].used >= n:
        return 0
    return arena_grow(last, n, chunk_size)


cdef inline const char* entry_key(const MemEntry* e) noexcept nogil:
    return <const char*>e + sizeof(MemEntry)


cdef inline size_t entry_klen(const MemEntry* e) noexcept nogil:
    return e.klen_kind >> 8


cdef inline int entry_kind(const MemEntry* e) noexcept nogil:
    return e.klen_kind & 0xFF


cdef inline const char* entry_value(const MemEntry* e) noexcept nogil:
    return entry_key(e) + entry_klen(e)


cdef inline size_t entry_footprint(size_t klen, size_t vlen) noexcept nogil:
    """Bytes of the arena that an entry takes."""
    return (sizeof(MemEntry) + klen + vlen + 7) & ~<size_t>7


cdef inline bint entry_has_key(const MemEntry* e, const char* key, size_t klen) noexcept nogil:
    return entry_klen(e) == klen and lsm_compare(entry_key(e), klen, key, klen) == 0
