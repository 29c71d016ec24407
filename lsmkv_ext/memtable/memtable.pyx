"""The memtable."""

# mem_reserve, mem_insert, mem_prefetch and mem_find are hot: they stay in this module, and what they call of the arena and
# the index is inline.

cimport cython
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from lsmkv_ext.batch cimport OP_DELETE, OP_PUT_POINTER
from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, ENTRY_POINTER, EXPIRY_SIZE, stored_size
from lsmkv_ext.memtable.arena cimport arena_reserve, chunk_new, chunks_free, entry_footprint, entry_has_key
from lsmkv_ext.memtable.index cimport (
    index_free,
    index_grow,
    index_is_full,
    index_new,
    index_slot_entry,
    index_slot_for,
    index_slot_matches,
)
from lsmkv_ext.memtable.order cimport latest_order, latest_order_short, mem_order_release
from lsmkv_ext.memtable.tombstones cimport (
    TOMBSTONE_LEAF,
    TombstoneNode,
    tombstone_list_cover,
    tombstone_tree_cover,
    tombstone_tree_free,
    tombstone_tree_grow,
)
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_load_ptr, lsm_prefetch, lsm_store64, lsm_store_ptr
from lsmkv_ext.port.coding cimport put_u64
from lsmkv_ext.port.pthread cimport pthread_mutex_destroy, pthread_mutex_init

cdef enum:
    # Further memory of a flush. Per entry: two sort items and two hashes for the filter. Per range tombstone: its items in the
    # list and the sweep. Per byte of its keys: the section, which may have each key twice, and the section compressed.
    FLUSH_PER_ENTRY = 2 * 16 + 16
    FLUSH_PER_RANGE = 256
    FLUSH_PER_RANGE_BYTE = 4


# --- writer ----------------------------------------------------------------------------------------------------------

cdef int mem_reserve(MemC* m, size_t klen, size_t vlen, uint64_t expiry) noexcept nogil:
    cdef uint64_t grown
    if index_is_full(m.n_index, m.index.mask):
        grown = index_grow(&m.index, m.expected_keys, m.chunk_size // 4)
        if grown == 0:
            return -1
        m.used += grown
    return arena_reserve(&m.last, entry_footprint(klen, stored_size(vlen, expiry)), m.chunk_size)


cdef char* mem_value_place(const MemC* m, size_t klen, uint64_t expiry) noexcept nogil:
    return m.last.base + m.last.used + sizeof(MemEntry) + klen + stored_size(0, expiry)


cdef int mem_insert(MemC* m, const char* key, size_t klen, const char* value, size_t vlen, uint64_t expiry,
                    uint64_t seq, int op, uint64_t hash) noexcept nogil:
    cdef uint64_t* slots
    cdef uint64_t i, slot, mask
    cdef MemEntry* e
    cdef MemEntry* found = NULL
    cdef char* p
    cdef int kind = 0
    cdef size_t stored = stored_size(vlen, expiry)
    cdef size_t n = entry_footprint(klen, stored)
    if mem_reserve(m, klen, vlen, expiry) != 0:
        return -1
    if op == OP_DELETE:
        kind = ENTRY_DELETE
    elif expiry:
        kind = ENTRY_EXPIRY
        m.n_expiring += 1
    if op == OP_PUT_POINTER:
        kind |= ENTRY_POINTER
        m.n_pointers += 1
    slots = m.index.slots
    mask = m.index.mask
    i = hash & mask
    lsm_prefetch(&slots[i])
    # Not visible yet: readers stop at `used`.
    e = <MemEntry*>(m.last.base + m.last.used)
    e.hash = hash
    e.seq = seq
    e.vlen = <uint32_t>stored
    e.klen_kind = <uint32_t>(klen << 8 | kind)
    p = <char*>e + sizeof(MemEntry)
    memcpy(p, key, klen)
    p += klen
    if expiry:
        put_u64(p, expiry)
        p += EXPIRY_SIZE
    if value != NULL:
        memcpy(p, value, vlen)
    while True:
        slot = slots[i]
        if slot == 0:
            m.n_index += 1
            break
        if index_slot_matches(slot, hash):
            found = index_slot_entry(slot)
            if found.hash == hash and entry_has_key(found, key, klen):
                break
            found = NULL
        i = (i + 1) & mask
    e.older = found
    if seq < m.min_seq:
        m.min_seq = seq
    lsm_store64(&m.max_seq, seq)
    lsm_store64(&m.n_entries, m.n_entries + 1)
    m.n_deletes += kind == ENTRY_DELETE
    m.used += n
    lsm_store64(<uint64_t*>&m.last.used, m.last.used + n)
    lsm_store64(&slots[i], index_slot_for(e, hash))
    return 0


cdef int mem_delete_range(MemC* m, const char* start, size_t start_len, const char* stop, size_t stop_len,
                          uint64_t seq) noexcept nogil:
    # Not in the arena, which holds nothing but entries.
    cdef MemRangeTombstone* d = <MemRangeTombstone*>malloc(sizeof(MemRangeTombstone) + start_len + stop_len)
    cdef TombstoneNode* head
    cdef char* p
    if d == NULL:
        return -1
    p = <char*>d + sizeof(MemRangeTombstone)
    memcpy(p, start, start_len)
    memcpy(p + start_len, stop, stop_len)
    d.span.start = p
    d.span.start_len = <uint32_t>start_len
    d.span.stop = p + start_len
    d.span.stop_len = <uint32_t>stop_len
    d.span.seq = seq
    d.chunk = m.last
    d.offset = m.last.used
    d.n_entries = m.n_entries
    d.older = m.range_tombstones
    if seq < m.min_seq:
        m.min_seq = seq
    m.max_seq = seq
    m.n_range_tombstones += 1
    m.range_key_bytes += start_len + stop_len
    m.used += sizeof(MemRangeTombstone) + start_len + stop_len
    lsm_store_ptr(<void**>&m.range_tombstones, d)
    m.tombstone_tail += 1
    if m.tombstone_tail >= TOMBSTONE_LEAF:
        # Without memory the tail stays, and reads are slower.
        head = tombstone_tree_grow(m.tombstone_tree, d, m.tombstone_tail, &m.used)
        if head != NULL:
            m.tombstone_tail = 0
            lsm_store_ptr(<void**>&m.tombstone_tree, head)
    return 0


cdef uint64_t mem_weight(const MemC* m) noexcept nogil:
    return (m.used + FLUSH_PER_ENTRY * m.n_entries + FLUSH_PER_RANGE * m.n_range_tombstones
            + FLUSH_PER_RANGE_BYTE * m.range_key_bytes)


# --- readers ---------------------------------------------------------------------------------------------------------

cdef void mem_prefetch(const MemC* m, uint64_t hash) noexcept nogil:
    cdef MemIndex* index = <MemIndex*>lsm_load_ptr(<void**>&m.index)
    lsm_prefetch(&index.slots[hash & index.mask])


cdef MemEntry* mem_find(const MemC* m, const char* key, size_t klen, uint64_t hash, uint64_t snapshot) noexcept nogil:
    cdef MemIndex* index = <MemIndex*>lsm_load_ptr(<void**>&m.index)
    cdef uint64_t i = hash & index.mask
    cdef uint64_t slot
    cdef MemEntry* e
    while True:
        slot = lsm_load64(&index.slots[i])
        if slot == 0:
            return NULL
        if index_slot_matches(slot, hash):
            e = index_slot_entry(slot)
            if e.hash == hash and entry_has_key(e, key, klen):
                while e != NULL and e.seq > snapshot:
                    e = e.older
                return e
        i = (i + 1) & index.mask


cdef const Span* mem_covering_span(const MemC* m, const char* key, size_t klen, uint64_t snapshot,
                                   size_t* steps=NULL) noexcept nogil:
    # The tree first: the newer list then always reaches head.newest.
    cdef TombstoneNode* head = <TombstoneNode*>lsm_load_ptr(<void**>&m.tombstone_tree)
    cdef MemRangeTombstone* d = <MemRangeTombstone*>lsm_load_ptr(<void**>&m.range_tombstones)
    cdef const Span* found = tombstone_list_cover(d, head.newest if head != NULL else NULL, key, klen, snapshot, steps)
    return found if found != NULL else tombstone_tree_cover(head, key, klen, snapshot, steps)


cdef uint64_t mem_covering_seq(const MemC* m, const char* key, size_t klen, uint64_t snapshot) noexcept nogil:
    cdef const Span* found = mem_covering_span(m, key, klen, snapshot)
    return found.seq if found != NULL else 0


cdef MemOrder* mem_order(MemC* m, ArenaChunk* chunk, size_t offset) noexcept nogil:
    cdef MemRangeTombstone* newest = <MemRangeTombstone*>lsm_load_ptr(<void**>&m.range_tombstones)
    return latest_order(&m.latest, m.first, &m.n_entries, chunk, offset, newest)


cdef bint mem_order_short(MemC* m, ArenaChunk* chunk, size_t offset, MemOrder** out) noexcept nogil:
    cdef MemRangeTombstone* newest = <MemRangeTombstone*>lsm_load_ptr(<void**>&m.range_tombstones)
    return latest_order_short(&m.latest, m.first, &m.n_entries, chunk, offset, newest, out)


# --- owner -----------------------------------------------------------------------------------------------------------

@cython.no_gc       # its references cannot form a cycle
cdef class Memtable:
    """One memtable: the engine writes it, read states pin it, a flush reads it."""

    def __cinit__(self, uint64_t seed, uint64_t write_buffer_size, uint64_t expected_keys=0, bint small=False):
        """`small`: it starts with little memory, because there may be hundreds of its kind."""
        self.seed = seed
        self.number = 0
        self.value_logs = []
        self.c = <MemC*>calloc(1, sizeof(MemC))
        if self.c == NULL:
            raise MemoryError("memtable")
        pthread_mutex_init(&self.c.latest.mutex, NULL)
        self.c.min_seq = <uint64_t>-1
        # A little more than the buffer size: most memtables are one chunk.
        self.c.chunk_size = (write_buffer_size + write_buffer_size // 64 + 65536 + 4095) & ~<uint64_t>4095
        self.c.first = chunk_new(self.c.chunk_size)
        self.c.last = self.c.first
        self.c.expected_keys = expected_keys
        self.c.index = index_new(small)
        if self.c.first == NULL or self.c.index == NULL:
            raise MemoryError("memtable")

    def __dealloc__(self):
        cdef MemRangeTombstone* d
        cdef MemRangeTombstone* older
        cdef MemValueLog* held
        if self.c == NULL:
            return
        while self.c.value_logs != NULL:
            held = self.c.value_logs
            self.c.value_logs = held.next
            free(held)
        mem_order_release(self.c.latest.order)
        pthread_mutex_destroy(&self.c.latest.mutex)
        chunks_free(self.c.first)
        index_free(self.c.index)
        tombstone_tree_free(self.c.tombstone_tree)
        d = self.c.range_tombstones
        while d != NULL:
            older = d.older
            free(d)
            d = older
        free(self.c)

    @property
    def entries(self):
        """Number of entries: every version of every key."""
        return lsm_load64(&self.c.n_entries)

    @property
    def keys(self):
        """Number of distinct keys."""
        return self.c.n_index

    @property
    def index_slots(self):
        """Slots of the hash index."""
        return self.c.index.mask + 1

    @property
    def deletes(self):
        """Number of tombstones."""
        return self.c.n_deletes

    @property
    def expiring(self):
        """Number of entries with an expiry."""
        return self.c.n_expiring

    @property
    def pointers(self):
        """Number of entries whose value is in a value log."""
        return self.c.n_pointers

    cpdef int hold(self, ValueLog log) except -1:
        """Keeps a value log that entries will point into."""
        cdef MemValueLog* held = self.c.value_logs
        while held != NULL:
            if held.log == log.c:
                return 0
            held = held.next
        held = <MemValueLog*>malloc(sizeof(MemValueLog))
        if held == NULL:
            raise MemoryError("memtable")
        try:
            self.value_logs.append(log)
        except BaseException:
            free(held)
            raise
        held.log = log.c
        held.next = self.c.value_logs
        lsm_store_ptr(<void**>&self.c.value_logs, held)
        return 0

    @property
    def used_bytes(self):
        """Bytes of the entries, and of the indexes and range tombstones."""
        return self.c.used

    @property
    def memory(self):
        """Bytes of the entries and of all indexes."""
        cdef uint64_t total = 0
        cdef ArenaChunk* chunk = self.c.first
        cdef MemIndex* index = self.c.index
        while chunk != NULL:
            total += chunk.used
            chunk = chunk.next
        while index != NULL:
            total += (index.mask + 1) * 8
            index = index.retired
        return total

    @property
    def min_seq(self):
        """Smallest sequence number; 0 if nothing was written."""
        return 0 if self.empty else self.c.min_seq

    @property
    def max_seq(self):
        """Largest sequence number; 0 if nothing was written."""
        return lsm_load64(&self.c.max_seq)

    @property
    def empty(self):
        """Whether nothing was written."""
        return lsm_load64(&self.c.n_entries) == 0 and self.c.n_range_tombstones == 0

    @property
    def range_tombstones(self):
        """List of (start, stop, sequence number), newest first."""
        cdef MemRangeTombstone* d = self.c.range_tombstones
        out = []
        while d != NULL:
            out.append((d.span.start[:d.span.start_len], d.span.stop[:d.span.stop_len], d.span.seq))
            d = d.older
        return out

    def range_tombstone_over(self, bytes key, uint64_t snapshot=<uint64_t>-1):
        """Return the sequence number of the newest range tombstone over `key` at `snapshot` (0: none), and the steps it took."""
        cdef size_t steps = 0
        cdef const Span* found = mem_covering_span(self.c, key, len(key), snapshot, &steps)
        return (found.seq if found != NULL else 0), steps
