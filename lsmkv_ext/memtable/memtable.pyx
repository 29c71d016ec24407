from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from lsmkv_ext.memtable.tombstones cimport (
    RANGE_LEAF,
    RangeNode,
    range_list_cover,
    range_tree_cover,
    range_tree_free,
    range_tree_grow,
)
from lsmkv_ext.batch cimport OP_DELETE
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.atomics cimport (
    lsm_fetch_add32,
    lsm_load64,
    lsm_load_ptr,
    lsm_prefetch,
    lsm_store64,
    lsm_store_ptr,
)
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* addr, size_t n, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t n)
    int madvise(void* addr, size_t n, int advice)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED

cdef extern from * nogil:
    """
    #ifdef MADV_HUGEPAGE
    #define LSM_MADV_HUGEPAGE MADV_HUGEPAGE
    #else
    #define LSM_MADV_HUGEPAGE 0
    #endif
    """
    int LSM_MADV_HUGEPAGE

cdef enum:
    FIRST_SLOTS = 4096
    MIDDLE_INDEX = 1 << 16
    LARGE_INDEX = 1 << 17
    HUGE_PAGE = 2 << 20
    LARGE_ARRAY = 256 << 10
    # What a flush takes on top: two arrays to sort entries, and their hashes for the filter; the list of range tombstones, the sweep
    # over it, and their section, in which each key may stand twice, with its compressed copy.
    FLUSH_PER_ENTRY = 2 * 16 + 16
    FLUSH_PER_RANGE = 256
    FLUSH_PER_RANGE_BYTE = 4
    FETCH_AHEAD = 6             # entries of a run that a walk sends for before it needs them

# --- large arrays: pages of their own, which go back at once when freed; malloc would keep them in a heap per thread ------------

cdef void* array_new(size_t n) noexcept nogil:
    """n zero bytes, or NULL."""
    cdef void* base
    if n < LARGE_ARRAY:
        return calloc(n if n else 1, 1)
    base = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if base == MAP_FAILED:
        return NULL
    if LSM_MADV_HUGEPAGE and n >= HUGE_PAGE:
        madvise(base, n, LSM_MADV_HUGEPAGE)
    return base


cdef void array_free(void* base, size_t n) noexcept nogil:
    if n < LARGE_ARRAY:
        free(base)
    elif base != NULL:
        munmap(base, n)


# --- arena -----------------------------------------------------------------------------------------------------------

cdef ArenaChunk* chunk_new(size_t capacity) noexcept nogil:
    cdef ArenaChunk* chunk = <ArenaChunk*>malloc(sizeof(ArenaChunk))
    cdef void* base
    if chunk == NULL:
        return NULL
    base = array_new(capacity)
    if base == NULL:
        free(chunk)
        return NULL
    chunk.next = NULL
    chunk.base = <char*>base
    chunk.capacity = capacity
    chunk.used = 0
    return chunk


cdef void chunk_free(ArenaChunk* chunk) noexcept nogil:
    array_free(chunk.base, chunk.capacity)
    free(chunk)


cdef char* arena_take(MemC* m, size_t n) noexcept nogil:
    """Memory at the end of the arena, not yet published; mem_reserve made sure there is room."""
    return m.last.base + m.last.used


cdef int arena_reserve(MemC* m, size_t n) noexcept nogil:
    cdef ArenaChunk* chunk
    if m.last.capacity - m.last.used >= n:
        return 0
    chunk = chunk_new(n if n > m.chunk_size else m.chunk_size)
    if chunk == NULL:
        return -1
    lsm_store_ptr(<void**>&m.last.next, chunk)
    # Others look at it too, while a large batch is written without the GIL.
    lsm_store_ptr(<void**>&m.last, chunk)
    return 0


# --- hash index ------------------------------------------------------------------------------------------------------

cdef MemIndex* index_new(uint64_t n_slots) noexcept nogil:
    cdef MemIndex* index = <MemIndex*>malloc(sizeof(MemIndex))
    if index == NULL:
        return NULL
    index.slots = <uint64_t*>array_new(n_slots * sizeof(uint64_t))
    if index.slots == NULL:
        free(index)
        return NULL
    index.mask = n_slots - 1
    index.retired = NULL
    return index


cdef inline bint index_is_full(uint64_t keys, uint64_t mask) noexcept nogil:
    return keys * 5 > mask * 3


cdef inline uint64_t slot_for(MemEntry* e, uint64_t hash) noexcept nogil:
    return (hash & <uint64_t>0xFFFF000000000000) | <uint64_t>e


cdef inline MemEntry* slot_entry(uint64_t slot) noexcept nogil:
    return <MemEntry*>(slot & <uint64_t>0x0000FFFFFFFFFFFF)


cdef uint64_t index_next_size(const MemC* m) noexcept nogil:
    """Small steps first: while it is small it stays in the processor's cache, and every get looks into it. Then the one that
    should be the last, so that a large one is moved once."""
    cdef uint64_t n = m.index.mask + 1
    if n < MIDDLE_INDEX:
        return n * 4
    if n >= LARGE_INDEX or m.expected_keys == 0:
        return n * (2 if n >= LARGE_INDEX else 8)
    n *= 2
    while index_is_full(m.expected_keys, n - 1) and 2 * n * sizeof(uint64_t) <= m.chunk_size // 4:
        n *= 2
    return n


cdef int index_grow(MemC* m) noexcept nogil:
    cdef MemIndex* old = m.index
    cdef MemIndex* new = index_new(index_next_size(m))
    cdef uint64_t i, j, slot
    if new == NULL:
        return -1
    for i in range(old.mask + 1):
        if i + 8 <= old.mask and old.slots[i + 8]:
            lsm_prefetch(slot_entry(old.slots[i + 8]))
        slot = old.slots[i]
        if slot:
            j = slot_entry(slot).hash & new.mask
            while new.slots[j]:
                j = (j + 1) & new.mask
            new.slots[j] = slot
    new.retired = old
    m.used += (new.mask + 1) * sizeof(uint64_t)
    lsm_store_ptr(<void**>&m.index, new)
    return 0


cdef inline bint same_key(const MemEntry* e, const char* key, size_t klen) noexcept nogil:
    return entry_klen(e) == klen and lsm_compare(entry_key(e), klen, key, klen) == 0


# --- writer ----------------------------------------------------------------------------------------------------------

cdef int mem_reserve(MemC* m, size_t klen, size_t vlen) noexcept nogil:
    """Makes room, so that the insert that follows the log record cannot fail."""
    if index_is_full(m.n_index, m.index.mask) and index_grow(m) != 0:
        return -1
    return arena_reserve(m, entry_footprint(klen, vlen))


cdef char* mem_value_place(const MemC* m, size_t klen) noexcept nogil:
    return m.last.base + m.last.used + sizeof(MemEntry) + klen


cdef int mem_insert(MemC* m, const char* key, size_t klen, const char* value, size_t vlen,
                    uint64_t seq, int op, uint64_t hash) noexcept nogil:
    cdef uint64_t* slots
    cdef uint64_t i, slot, mask
    cdef MemEntry* e
    cdef MemEntry* found = NULL
    cdef char* p
    cdef size_t n = entry_footprint(klen, vlen)
    if mem_reserve(m, klen, vlen) != 0:
        return -1
    slots = m.index.slots
    mask = m.index.mask
    i = hash & mask
    lsm_prefetch(&slots[i])
    e = <MemEntry*>arena_take(m, n)
    e.hash = hash
    e.seq = seq
    e.vlen = <uint32_t>vlen
    e.klen_op = <uint32_t>(klen << 8 | op)
    p = <char*>e + sizeof(MemEntry)
    memcpy(p, key, klen)
    if value != NULL:
        memcpy(p + klen, value, vlen)
    while True:
        slot = slots[i]
        if slot == 0:
            m.n_index += 1
            break
        if (slot ^ hash) >> 48 == 0:
            found = slot_entry(slot)
            if found.hash == hash and same_key(found, key, klen):
                break
            found = NULL
        i = (i + 1) & mask
    e.older = found
    if m.n_entries == 0 or seq < m.min_seq:
        m.min_seq = seq
    m.max_seq = seq
    lsm_store64(&m.n_entries, m.n_entries + 1)
    m.n_deletes += op == OP_DELETE
    m.used += n
    lsm_store64(<uint64_t*>&m.last.used, m.last.used + n)
    lsm_store64(&slots[i], slot_for(e, hash))
    return 0


cdef int mem_delete_range(MemC* m, const char* start, size_t start_len, const char* stop, size_t stop_len,
                          uint64_t seq) noexcept nogil:
    # Not in the arena: the arena holds nothing but entries, so that it can be walked.
    cdef MemRangeTombstone* d = <MemRangeTombstone*>malloc(sizeof(MemRangeTombstone) + start_len + stop_len)
    cdef RangeNode* head
    cdef char* p
    if d == NULL:
        return -1
    p = <char*>d + sizeof(MemRangeTombstone)
    memcpy(p, start, start_len)
    memcpy(p + start_len, stop, stop_len)
    d.start = p
    d.start_len = <uint32_t>start_len
    d.stop = p + start_len
    d.stop_len = <uint32_t>stop_len
    d.seq = seq
    d.older = m.range_tombstones
    if (m.n_entries == 0 and m.n_range_tombstones == 0) or seq < m.min_seq:
        m.min_seq = seq
    m.max_seq = seq
    m.n_range_tombstones += 1
    m.range_key_bytes += start_len + stop_len
    m.used += sizeof(MemRangeTombstone) + start_len + stop_len
    lsm_store_ptr(<void**>&m.range_tombstones, d)
    m.range_tail += 1
    if m.range_tail >= RANGE_LEAF:
        # Without memory for it the tail is a little longer, and so are reads.
        head = range_tree_grow(m.range_tree, d, m.range_tail, &m.used)
        if head != NULL:
            m.range_tail = 0
            lsm_store_ptr(<void**>&m.range_tree, head)
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
        if (slot ^ hash) >> 48 == 0:
            e = slot_entry(slot)
            if e.hash == hash and same_key(e, key, klen):
                while e != NULL and e.seq > snapshot:
                    e = e.older
                return e
        i = (i + 1) & index.mask


cdef uint64_t mem_covering_seq(const MemC* m, const char* key, size_t klen, uint64_t snapshot,
                               size_t* steps=NULL) noexcept nogil:
    # In this order: the list then always reaches down to the tree.
    cdef RangeNode* head = <RangeNode*>lsm_load_ptr(<void**>&m.range_tree)
    cdef MemRangeTombstone* d = <MemRangeTombstone*>lsm_load_ptr(<void**>&m.range_tombstones)
    cdef uint64_t seq = range_list_cover(d, head.newest if head != NULL else NULL, key, klen, snapshot, steps)
    return seq if seq else range_tree_cover(head, key, klen, snapshot, steps)


# --- order -----------------------------------------------------------------------------------------------------------

cdef inline int item_compare(const SortItem* a, const SortItem* b) noexcept nogil:
    """(key, newest first); the prefixes must have been cut at the same place."""
    cdef int r
    if a.prefix != b.prefix:
        return -1 if a.prefix < b.prefix else 1
    r = lsm_compare(entry_key(a.entry), entry_klen(a.entry), entry_key(b.entry), entry_klen(b.entry))
    if r:
        return r
    return -1 if a.entry.seq > b.entry.seq else (1 if a.entry.seq < b.entry.seq else 0)


cdef void insertion_sort(SortItem* a, size_t n) noexcept nogil:
    cdef size_t i, j
    cdef SortItem x
    for i in range(1, n):
        x = a[i]
        j = i
        while j > 0 and item_compare(&x, &a[j - 1]) < 0:
            a[j] = a[j - 1]
            j -= 1
        a[j] = x


cdef size_t common_prefix(const SortItem* a, size_t n, size_t known) noexcept nogil:
    """How many leading bytes all n keys share; `known` of them are known to be shared."""
    cdef const char* first = entry_key(a[0].entry)
    cdef size_t shared = entry_klen(a[0].entry)
    cdef size_t i, j
    cdef const char* key
    cdef size_t klen
    for i in range(1, n):
        if i + 8 < n:
            lsm_prefetch(entry_key(a[i + 8].entry))
        key = entry_key(a[i].entry)
        klen = entry_klen(a[i].entry)
        if klen < shared:
            shared = klen
        j = known
        while j < shared and key[j] == first[j]:
            j += 1
        shared = j
        if shared <= known:
            return known
    return shared


cdef bint cut_prefixes(SortItem* a, size_t n, size_t skip) noexcept nogil:
    """Returns whether they tell all: keys of one length that end within them, so that equal prefixes are equal keys."""
    cdef size_t i, klen
    cdef size_t length = entry_klen(a[0].entry)
    cdef bint alike = length <= skip + 8
    for i in range(n):
        if i + 8 < n:
            lsm_prefetch(entry_key(a[i + 8].entry))
        klen = entry_klen(a[i].entry)
        alike = alike and klen == length
        a[i].prefix = lsm_prefix8(entry_key(a[i].entry) + skip, klen - skip)
    return alike


cdef SortItem* radix_sort(SortItem* a, SortItem* scratch, size_t n) noexcept nogil:
    """Stable sort by prefix, least significant byte first; returns whichever of the two arrays holds the result."""
    cdef size_t counts[8][256]
    cdef size_t i, total, c
    cdef int byte
    cdef uint64_t p
    cdef SortItem* swap
    memset(counts, 0, sizeof(counts))
    for i in range(n):
        p = a[i].prefix
        for byte in range(8):
            counts[byte][(p >> (8 * byte)) & 0xFF] += 1
    for byte in range(8):
        if counts[byte][(a[0].prefix >> (8 * byte)) & 0xFF] == n:
            continue    # all equal here: this byte orders nothing
        total = 0
        for i in range(256):
            c = counts[byte][i]
            counts[byte][i] = total
            total += c
        for i in range(n):
            c = (a[i].prefix >> (8 * byte)) & 0xFF
            scratch[counts[byte][c]] = a[i]
            counts[byte][c] += 1
        swap = a
        a = scratch
        scratch = swap
    return a


cdef void sort_items(SortItem* a, SortItem* scratch, size_t n, size_t known, size_t* skip_out) noexcept nogil:
    """Sorts by (key, newest first) what comes newest first. Cuts prefixes behind what all n keys share and leaves them so at
    this depth; groups of equal prefix are sorted behind their own common prefix in turn."""
    cdef size_t skip = common_prefix(a, n, known)
    skip_out[0] = skip
    sort_cut(a, scratch, n, skip, cut_prefixes(a, n, skip))


cdef void sort_cut(SortItem* a, SortItem* scratch, size_t n, size_t skip, bint alike) noexcept nogil:
    """The same, of items whose prefixes are cut; `alike` as `cut_prefixes` says."""
    cdef size_t i, j
    cdef SortItem* sorted_
    cdef uint64_t prefix
    if n <= 32:
        insertion_sort(a, n)
        return
    sorted_ = radix_sort(a, scratch, n)
    if sorted_ != a:
        memcpy(a, sorted_, n * sizeof(SortItem))
    if alike:
        return          # a stable sort has left the versions of each key as they came
    i = 0
    while i < n:
        j = i + 1
        prefix = a[i].prefix
        while j < n and a[j].prefix == prefix:
            j += 1
        if j - i > 32:
            sort_group(a + i, scratch, j - i, skip, prefix)
        elif j - i > 1:
            insertion_sort(a + i, j - i)
        i = j


cdef void merge_sort(SortItem* a, SortItem* scratch, size_t n) noexcept nogil:
    cdef size_t half, i, j, k
    if n <= 16:
        insertion_sort(a, n)
        return
    half = n // 2
    merge_sort(a, scratch, half)
    merge_sort(a + half, scratch, n - half)
    if item_compare(&a[half - 1], &a[half]) <= 0:
        return
    memcpy(scratch, a, half * sizeof(SortItem))
    i = 0
    j = half
    k = 0
    while i < half:
        if j < n and item_compare(&a[j], &scratch[i]) < 0:
            a[k] = a[j]
            j += 1
        else:
            a[k] = scratch[i]
            i += 1
        k += 1


cdef void sort_group(SortItem* a, SortItem* scratch, size_t n, size_t skip, uint64_t prefix) noexcept nogil:
    """A group with equal prefixes. Where all its keys go on behind those 8 bytes it is sorted one step deeper; keys that
    end within them (zero padding makes prefixes equal) need whole comparisons."""
    cdef size_t i, inner
    cdef bint deep = True
    for i in range(n):
        if entry_klen(a[i].entry) < skip + 8:
            deep = False
            break
    # A key repeated over and over is one group that no prefix splits: merge sort by (key, seq) then.
    if deep and common_prefix(a, n, skip + 8) < entry_klen(a[0].entry):
        sort_items(a, scratch, n, skip + 8, &inner)
        for i in range(n):
            a[i].prefix = prefix
    else:
        merge_sort(a, scratch, n)


cdef void run_release(MemRun* run) noexcept nogil:
    if lsm_fetch_add32(&run.refs, -1) == 1:
        array_free(run.room, run.capacity * sizeof(SortItem))
        free(run)


cdef void mem_order_release(MemOrder* order) noexcept nogil:
    cdef int i
    if order == NULL or lsm_fetch_add32(&order.refs, -1) != 1:
        return
    for i in range(order.n_runs):
        run_release(order.runs[i])
    free(order)


cdef MemRun* run_new(size_t capacity) noexcept nogil:
    """Room for so many items; none of them is in it yet."""
    cdef MemRun* run = <MemRun*>malloc(sizeof(MemRun))
    if run == NULL:
        return NULL
    run.room = <SortItem*>array_new(capacity * sizeof(SortItem))
    if run.room == NULL:
        free(run)
        return NULL
    run.refs = 1
    run.capacity = capacity
    run.items = run.room
    run.n = 0
    run.skip = 0
    return run


cdef bint run_gather(MemRun* run, ArenaChunk* chunk, size_t at, ArenaChunk* end_chunk, size_t end_offset) noexcept nogil:
    """Fills the run from its end with the entries between two places in the arena, so that the newest comes first, and cuts
    their prefixes on the way: the arena is read once, and may be larger than any cache. Returns what `cut_prefixes` does."""
    cdef size_t limit, klen, shared, length = 0
    cdef SortItem* item = run.room + run.capacity
    cdef const char* first = NULL
    cdef const char* key
    cdef MemEntry* e
    cdef bint alike = True, again = False
    run.skip = 0
    while True:
        limit = end_offset if chunk == end_chunk else <size_t>lsm_load64(<uint64_t*>&chunk.used)
        while at < limit:
            e = <MemEntry*>(chunk.base + at)
            key = entry_key(e)
            klen = entry_klen(e)
            at += entry_footprint(klen, e.vlen)
            if first == NULL:
                first = key
                run.skip = length = klen
            shared = 0
            while shared < run.skip and shared < klen and key[shared] == first[shared]:
                shared += 1
            if shared < run.skip:
                # Mostly settled within the first few; where it is not, once more over all of them at the end.
                run.skip = shared
                again = again or run.n > 64
                if not again:
                    cut_prefixes(item, run.n, shared)
            alike = alike and klen == length
            item -= 1
            run.n += 1
            item.entry = e
            item.prefix = lsm_prefix8(key + run.skip, klen - run.skip)
        if chunk == end_chunk:
            break
        chunk = <ArenaChunk*>lsm_load_ptr(<void**>&chunk.next)
        at = 0
    run.items = item
    if again:
        cut_prefixes(item, run.n, run.skip)
    return alike and length <= run.skip + 8


cdef MemRun* run_build(ArenaChunk* chunk, size_t offset, ArenaChunk* end_chunk, size_t end_offset, size_t most) noexcept nogil:
    """Sorts the entries between two places in the arena, of which there are at most so many."""
    cdef MemRun* run = run_new(most)
    cdef SortItem* scratch
    cdef bint alike
    if run == NULL:
        return NULL
    alike = run_gather(run, chunk, offset, end_chunk, end_offset)
    if run.n > 1:
        scratch = <SortItem*>array_new(run.n * sizeof(SortItem))
        if scratch == NULL:
            run_release(run)
            return NULL
        sort_cut(run.items, scratch, run.n, run.skip, alike)
        array_free(scratch, run.n * sizeof(SortItem))
    return run


cdef MemRun* run_merge(MemRun* a, MemRun* b) noexcept nogil:
    cdef MemRun* out = run_new(a.n + b.n)
    cdef size_t i = 0, j = 0, k = 0
    cdef SortItem pair[2]
    cdef size_t skip
    cdef SortItem x, y
    if out == NULL:
        return NULL
    # What both runs share: their own common prefixes, as far as the two agree.
    pair[0] = a.items[0]
    pair[1] = b.items[0]
    skip = common_prefix(pair, 2, 0)
    if a.skip < skip:
        skip = a.skip
    if b.skip < skip:
        skip = b.skip
    x = a.items[0]
    y = b.items[0]
    cut_prefixes(&x, 1, skip)
    cut_prefixes(&y, 1, skip)
    while i < a.n or j < b.n:
        if j >= b.n or (i < a.n and item_compare(&x, &y) <= 0):
            out.items[k] = x
            i += 1
            if i < a.n:
                x = a.items[i]
                if skip != a.skip:
                    cut_prefixes(&x, 1, skip)
        else:
            out.items[k] = y
            j += 1
            if j < b.n:
                y = b.items[j]
                if skip != b.skip:
                    cut_prefixes(&y, 1, skip)
        k += 1
    out.skip = skip
    out.n = k
    return out


cdef MemOrder* order_extend(MemOrder* old, MemRun* fresh, ArenaChunk* chunk, size_t offset) noexcept nogil:
    """A new order: the old runs plus a fresh one, runs of similar size merged. Takes over `fresh`."""
    cdef MemOrder* order = <MemOrder*>malloc(sizeof(MemOrder))
    cdef MemRun* merged
    cdef int i
    if order == NULL:
        run_release(fresh)
        return NULL
    order.refs = 1
    order.n_runs = 0
    order.chunk = chunk
    order.offset = offset
    if old != NULL:
        order.n_runs = old.n_runs
        for i in range(old.n_runs):
            order.runs[i] = old.runs[i]
            lsm_fetch_add32(&order.runs[i].refs, 1)
    order.runs[order.n_runs] = fresh
    order.n_runs += 1
    # A seek looks into every run, so few may stand: each is at least four times as long as the one after it.
    while order.n_runs >= 2 and (order.runs[order.n_runs - 2].n < 4 * order.runs[order.n_runs - 1].n
                                 or order.n_runs >= MAX_RUNS - 1):
        merged = run_merge(order.runs[order.n_runs - 2], order.runs[order.n_runs - 1])
        if merged == NULL:
            mem_order_release(order)
            return NULL
        run_release(order.runs[order.n_runs - 1])
        run_release(order.runs[order.n_runs - 2])
        order.n_runs -= 1
        order.runs[order.n_runs - 1] = merged
    return order


cdef MemOrder* mem_order(MemC* m, ArenaChunk* chunk, size_t offset) noexcept nogil:
    cdef MemOrder* order
    cdef MemOrder* old
    cdef MemRun* fresh
    cdef size_t most
    cdef int i
    pthread_mutex_lock(&m.order_mutex)
    old = m.order
    # An order made for a later moment serves too: its iterators look at sequence numbers.
    if old != NULL and covers(old, chunk, offset):
        order = old
    else:
        # Counted after (chunk, offset) was read: those behind it may be among them.
        most = lsm_load64(&m.n_entries)
        if old == NULL:
            fresh = run_build(m.first, 0, chunk, offset, most)
        else:
            for i in range(old.n_runs):
                most -= old.runs[i].n
            fresh = run_build(old.chunk, old.offset, chunk, offset, most)
        order = NULL if fresh == NULL else (
            order_extend(old, fresh, chunk, offset) if fresh.n else order_keep(old, fresh, chunk, offset))
        if order != NULL and order != old:
            m.order = order
            mem_order_release(old)
    if order != NULL:
        lsm_fetch_add32(&order.refs, 1)
    pthread_mutex_unlock(&m.order_mutex)
    return order


cdef bint covers(MemOrder* order, ArenaChunk* chunk, size_t offset) noexcept nogil:
    """Whether the order reaches (chunk, offset)."""
    cdef ArenaChunk* c = chunk
    if order.chunk == chunk:
        return order.offset >= offset
    while c != NULL:
        if c == order.chunk:
            return True
        c = <ArenaChunk*>lsm_load_ptr(<void**>&c.next)
    return False


cdef MemOrder* order_keep(MemOrder* old, MemRun* empty, ArenaChunk* chunk, size_t offset) noexcept nogil:
    """Nothing new to sort: an order with no runs, or the old one."""
    if old != NULL:
        run_release(empty)
        return old
    cdef MemOrder* order = <MemOrder*>malloc(sizeof(MemOrder))
    run_release(empty)
    if order == NULL:
        return NULL
    order.refs = 1
    order.n_runs = 0
    order.chunk = chunk
    order.offset = offset
    return order


# --- walking a run ---------------------------------------------------------------------------------------------------

cdef inline bint item_same_key(const MemRun* run, size_t i, size_t j) noexcept nogil:
    cdef const MemEntry* a
    cdef const MemEntry* b
    if run.items[i].prefix != run.items[j].prefix:
        return False
    a = run.items[i].entry
    b = run.items[j].entry
    return same_key(a, entry_key(b), entry_klen(b))


cdef inline ssize_t last_version(const MemRun* run, ssize_t at, ssize_t direction) noexcept nogil:
    """The version of the same key that is farthest in the direction, 1 or -1. In growing steps, as a counter that is written all
    the time has thousands."""
    cdef ssize_t limit = <ssize_t>run.n if direction > 0 else -1
    cdef ssize_t same = at, other = at + direction, step = direction, mid
    while other != limit and item_same_key(run, other, at):
        same = other
        other = min(other + step, limit) if direction > 0 else max(other + step, limit)
        step *= 2
    while (other - same) * direction > 1:
        mid = (same + other) >> 1
        if item_same_key(run, mid, at):
            same = mid
        else:
            other = mid
    return same


cdef inline size_t versions_end(const MemRun* run, size_t at) noexcept nogil:
    """Where the next key begins."""
    return last_version(run, at, 1) + 1


cdef inline size_t versions_begin(const MemRun* run, size_t at) noexcept nogil:
    """The newest version of the key."""
    return last_version(run, at, -1)


cdef size_t first_visible(const MemRun* run, size_t at, size_t end, uint64_t snapshot) noexcept nogil:
    """The newest of a key's versions [at, end) that the snapshot sees, or `end`."""
    cdef size_t mid
    if run.items[at].entry.seq <= snapshot:
        return at
    at += 1
    while at < end:
        mid = (at + end) >> 1
        if run.items[mid].entry.seq <= snapshot:
            end = mid
        else:
            at = mid + 1
    return end


cdef void run_settle_forward(RunIter* it) noexcept nogil:
    """From the first version of a key: to the newest visible one, or on to the next key that has one."""
    cdef const MemRun* run = it.run
    cdef size_t end, found
    while it.pos < run.n and run.items[it.pos].entry.seq > it.snapshot:
        end = versions_end(run, it.pos)
        found = first_visible(run, it.pos, end, it.snapshot)
        it.pos = found
        if found < end:
            break
    it.valid = it.pos < run.n


cdef void run_settle_backward(RunIter* it) noexcept nogil:
    """From any version of a key (its last): to its newest visible one, or back to a key that has one."""
    cdef size_t begin, end
    while it.valid:
        begin = versions_begin(it.run, it.pos)
        end = it.pos + 1
        it.pos = first_visible(it.run, begin, end, it.snapshot)
        if it.pos < end:
            return
        if begin == 0:
            it.valid = False
        else:
            it.pos = begin - 1


cdef size_t run_lower_bound(const MemRun* run, const char* key, size_t klen) noexcept nogil:
    """Index of the first item with key >= `key`."""
    cdef size_t lo = 0, hi = run.n, mid
    cdef SortItem* items = run.items
    cdef const char* sample
    cdef size_t n
    cdef uint64_t prefix
    cdef int r
    if run.n == 0:
        return 0
    sample = entry_key(items[0].entry)
    n = run.skip if run.skip < klen else klen
    r = lsm_compare(key, n, sample, n)
    if r < 0 or (r == 0 and klen < run.skip):
        return 0
    if r > 0:
        return run.n
    prefix = lsm_prefix8(key + run.skip, klen - run.skip)
    while lo < hi:
        mid = (lo + hi) >> 1
        if items[mid].prefix != prefix:
            r = -1 if items[mid].prefix < prefix else 1
        else:
            r = lsm_compare(entry_key(items[mid].entry), entry_klen(items[mid].entry), key, klen)
        if r < 0:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef inline void fetch_entry(const MemRun* run, size_t i) noexcept nogil:
    """Sends for an entry with a value of about a hundred bytes."""
    cdef const char* p = <const char*>run.items[i].entry
    lsm_prefetch(p)
    lsm_prefetch(p + 64)
    lsm_prefetch(p + 128)


cdef void run_seek(RunIter* it, const char* key, size_t klen) noexcept nogil:
    cdef size_t i
    it.pos = run_lower_bound(it.run, key, klen)
    # Neighbours in order are strangers in the arena: what a walk will need is sent for before it begins.
    for i in range(it.pos, min(it.pos + FETCH_AHEAD, it.run.n)):
        fetch_entry(it.run, i)
    run_settle_forward(it)


cdef void run_seek_before(RunIter* it, const char* key, size_t klen) noexcept nogil:
    it.pos = run_lower_bound(it.run, key, klen)
    it.valid = it.pos > 0
    if it.valid:
        it.pos -= 1
        run_settle_backward(it)


cdef void run_first(RunIter* it) noexcept nogil:
    it.pos = 0
    run_settle_forward(it)


cdef void run_last(RunIter* it) noexcept nogil:
    it.valid = it.run.n > 0
    if it.valid:
        it.pos = it.run.n - 1
        run_settle_backward(it)


cdef void run_next(RunIter* it) noexcept nogil:
    cdef size_t at = it.pos
    cdef size_t n = it.run.n
    if at + FETCH_AHEAD < n:
        fetch_entry(it.run, at + FETCH_AHEAD)
    it.pos = versions_end(it.run, at)
    run_settle_forward(it)


cdef void run_prev(RunIter* it) noexcept nogil:
    cdef size_t begin = versions_begin(it.run, it.pos)
    if begin == 0:
        it.valid = False
        return
    it.pos = begin - 1
    run_settle_backward(it)


# --- owner -----------------------------------------------------------------------------------------------------------

cdef class Memtable:
    """Owns one memtable's memory. The engine writes it, views pin it, a flush reads it."""

    def __cinit__(self, uint64_t seed, uint64_t write_buffer_size, uint64_t expected_keys=0):
        self.seed = seed
        self.number = 0
        self.capacity = write_buffer_size
        self.c = <MemC*>calloc(1, sizeof(MemC))
        if self.c == NULL:
            raise MemoryError("memtable")
        pthread_mutex_init(&self.c.order_mutex, NULL)
        # A little over the buffer size, so that the usual memtable is one chunk.
        self.c.chunk_size = (write_buffer_size + write_buffer_size // 64 + 65536 + 4095) & ~<uint64_t>4095
        self.c.first = chunk_new(self.c.chunk_size)
        self.c.last = self.c.first
        self.c.expected_keys = expected_keys
        self.c.index = index_new(FIRST_SLOTS)
        if self.c.first == NULL or self.c.index == NULL:
            raise MemoryError("memtable")

    def __dealloc__(self):
        cdef ArenaChunk* chunk
        cdef ArenaChunk* next_chunk
        cdef MemIndex* index
        cdef MemIndex* retired
        cdef MemRangeTombstone* d
        cdef MemRangeTombstone* older
        if self.c == NULL:
            return
        mem_order_release(self.c.order)
        chunk = self.c.first
        while chunk != NULL:
            next_chunk = chunk.next
            chunk_free(chunk)
            chunk = next_chunk
        index = self.c.index
        while index != NULL:
            retired = index.retired
            array_free(index.slots, (index.mask + 1) * sizeof(uint64_t))
            free(index)
            index = retired
        range_tree_free(self.c.range_tree)
        d = self.c.range_tombstones
        while d != NULL:
            older = d.older
            free(d)
            d = older
        pthread_mutex_destroy(&self.c.order_mutex)
        free(self.c)

    @property
    def entries(self):
        return self.c.n_entries

    @property
    def keys(self):
        """How many different ones."""
        return self.c.n_index

    @property
    def index_slots(self):
        return self.c.index.mask + 1

    @property
    def deletes(self):
        return self.c.n_deletes

    @property
    def used_bytes(self):
        return self.c.used

    @property
    def memory(self):
        """Bytes held, index included."""
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
        return self.c.min_seq

    @property
    def max_seq(self):
        return self.c.max_seq

    @property
    def empty(self):
        return self.c.n_entries == 0 and self.c.n_range_tombstones == 0

    @property
    def range_tombstones(self):
        """[(start, stop, seq)], newest first."""
        cdef MemRangeTombstone* d = self.c.range_tombstones
        out = []
        while d != NULL:
            out.append((d.start[:d.start_len], d.stop[:d.stop_len], d.seq))
            d = d.older
        return out

    def range_tombstone_over(self, bytes key, uint64_t snapshot=<uint64_t>-1):
        """Sequence number of the newest range tombstone over `key` at `snapshot` (0: none), and how many were looked at."""
        cdef size_t steps = 0
        cdef uint64_t seq = mem_covering_seq(self.c, key, len(key), snapshot, &steps)
        return seq, steps
