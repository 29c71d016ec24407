from libc.stdlib cimport free, malloc

from lsmkv_ext.memtable.arena cimport MemEntry, entry_footprint, entry_has_key, entry_key, entry_klen
from lsmkv_ext.memtable.sort cimport common_prefix, cut_prefixes, item_compare, sort_items
from lsmkv_ext.port.atomics cimport lsm_fetch_add32, lsm_load64, lsm_load_ptr, lsm_prefetch
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.pages cimport lsm_pages_alloc, lsm_pages_free
from lsmkv_ext.port.pthread cimport pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_unlock

cdef enum:
    SETTLED = 64                # entries after which a shorter common prefix is applied to all items only at the end
    PREFETCH_DISTANCE = 6       # entries
    MAX_CUTS = 8                # range tombstones at which one request cuts the order
    MERGE_BELOW = 4             # a run is merged with the next one if it is less than so many times as long
    SHORT_SORT = 32768          # entries that a thread sorts and merges with the GIL held, in less than its turn


# --- runs and orders -------------------------------------------------------------------------------------------------

cdef void run_release(MemRun* run) noexcept nogil:
    if lsm_fetch_add32(&run.refs, -1) == 1:
        lsm_pages_free(run.room, run.capacity * sizeof(SortItem))
        free(run)


cdef void mem_order_release(MemOrder* order) noexcept nogil:
    cdef int i
    if order == NULL or lsm_fetch_add32(&order.refs, -1) != 1:
        return
    for i in range(order.n_runs):
        run_release(order.runs[i])
    free(order)


cdef MemRun* run_new(size_t capacity) noexcept nogil:
    """An empty run with room for `capacity` items."""
    cdef MemRun* run = <MemRun*>malloc(sizeof(MemRun))
    if run == NULL:
        return NULL
    run.room = <SortItem*>lsm_pages_alloc(capacity * sizeof(SortItem))
    if run.room == NULL:
        free(run)
        return NULL
    run.refs = 1
    run.capacity = capacity
    run.items = run.room
    run.n = 0
    run.max_seq = 0
    run.skip = 0
    return run


cdef bint run_gather(MemRun* run, ArenaChunk* chunk, size_t at, ArenaChunk* end_chunk, size_t end_offset) noexcept nogil:
    """Fills the run, from its end, with the entries between two positions of the arena, newest first, and cuts their prefixes in
    the same pass: the arena may exceed any cache. Returns what cut_prefixes does."""
    cdef size_t limit, klen, shared, length = 0
    cdef SortItem* item = run.room + run.capacity
    cdef const char* first = NULL
    cdef const char* key
    cdef MemEntry* e
    cdef bint alike = True, cut_again = False
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
                # The first entries mostly decide. Where they do not, all prefixes are cut again at the end.
                run.skip = shared
                cut_again = cut_again or run.n > SETTLED
                if not cut_again:
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
    if run.n:
        run.max_seq = item.entry.seq    # sequence numbers grow along the arena
    if cut_again:
        cut_prefixes(item, run.n, run.skip)
    return alike and length <= run.skip + 8


cdef MemRun* run_build(ArenaChunk* chunk, size_t offset, ArenaChunk* end_chunk, size_t end_offset, size_t most) noexcept nogil:
    """Sorts the entries between two positions of the arena, at most `most` of them."""
    cdef MemRun* run = run_new(most)
    cdef SortItem* scratch
    cdef bint decisive
    if run == NULL:
        return NULL
    decisive = run_gather(run, chunk, offset, end_chunk, end_offset)
    if run.n > 1:
        scratch = <SortItem*>lsm_pages_alloc(run.n * sizeof(SortItem))
        if scratch == NULL:
            run_release(run)
            return NULL
        sort_items(run.items, scratch, run.n, run.skip, decisive)
        lsm_pages_free(scratch, run.n * sizeof(SortItem))
    return run


cdef MemRun* run_merge(MemRun* a, MemRun* b) noexcept nogil:
    cdef MemRun* out = run_new(a.n + b.n)
    cdef size_t i = 0, j = 0, k = 0
    cdef SortItem pair[2]
    cdef SortItem x, y
    cdef size_t skip
    if out == NULL:
        return NULL
    # The prefix that all keys of both runs share.
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
    out.max_seq = max(a.max_seq, b.max_seq)
    out.n = k
    return out


cdef MemOrder* order_new(ArenaChunk* chunk, size_t offset) noexcept nogil:
    cdef MemOrder* order = <MemOrder*>malloc(sizeof(MemOrder))
    if order == NULL:
        return NULL
    order.refs = 1
    order.n_runs = 0
    order.chunk = chunk
    order.offset = offset
    return order


cdef MemOrder* order_extend(MemOrder* old, MemRun* fresh, ArenaChunk* chunk, size_t offset) noexcept nogil:
    """A new order: the runs of `old` (may be NULL) and a fresh one, runs of similar size merged. Takes over `fresh`."""
    cdef MemOrder* order = order_new(chunk, offset)
    cdef MemRun* merged
    cdef int i
    if order == NULL:
        run_release(fresh)
        return NULL
    if old != NULL:
        order.n_runs = old.n_runs
        for i in range(old.n_runs):
            order.runs[i] = old.runs[i]
            lsm_fetch_add32(&order.runs[i].refs, 1)
    order.runs[order.n_runs] = fresh
    order.n_runs += 1
    # A seek searches every run, so there must be few: each is at least MERGE_BELOW times as long as the one after it.
    while order.n_runs >= 2 and (order.runs[order.n_runs - 2].n < MERGE_BELOW * order.runs[order.n_runs - 1].n
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


cdef MemOrder* order_keep(MemOrder* old, MemRun* empty, ArenaChunk* chunk, size_t offset) noexcept nogil:
    """Nothing new to sort: the old order, or one without runs. Takes over `empty`."""
    run_release(empty)
    return old if old != NULL else order_new(chunk, offset)


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


cdef MemRun* run_of_new(const MemOrder* old, ArenaChunk* first, uint64_t n_entries, ArenaChunk* chunk,
                        size_t offset) noexcept nogil:
    """A run of the entries after `old` (NULL: from the first on) and before (chunk, offset)."""
    cdef int i
    if old == NULL:
        return run_build(first, 0, chunk, offset, n_entries)
    for i in range(old.n_runs):
        n_entries -= old.runs[i].n
    return run_build(old.chunk, old.offset, chunk, offset, n_entries)


cdef bint extend(LatestOrder* latest, ArenaChunk* first, uint64_t n_entries, ArenaChunk* chunk, size_t offset) noexcept nogil:
    """Makes the order reach (chunk, offset), which `n_entries` entries precede. False without memory. The mutex is held."""
    cdef MemOrder* old = latest.order
    cdef MemOrder* order = NULL
    cdef MemRun* fresh = run_of_new(old, first, n_entries, chunk, offset)
    if fresh == NULL:
        return False
    order = order_extend(old, fresh, chunk, offset) if fresh.n else order_keep(old, fresh, chunk, offset)
    if order == NULL:
        return False
    if order != old:
        latest.order = order
        mem_order_release(old)
    return True


cdef bint reaches(const LatestOrder* latest, ArenaChunk* chunk, size_t offset) noexcept nogil:
    return latest.order != NULL and covers(latest.order, chunk, offset)


cdef bint cut_at(LatestOrder* latest, ArenaChunk* first, const MemRangeTombstone* d, int most) noexcept nogil:
    """Ends a run at each of the newest range tombstones that the order does not reach, oldest first."""
    if d == NULL or most == 0 or reaches(latest, d.chunk, d.offset):
        return True
    return (cut_at(latest, first, d.older, most - 1)
            and extend(latest, first, d.n_entries, d.chunk, d.offset))


cdef MemOrder* reach(LatestOrder* latest, ArenaChunk* first, const uint64_t* n_entries, ArenaChunk* chunk, size_t offset,
                     const MemRangeTombstone* newest) noexcept nogil:
    """The latest order, extended to (chunk, offset), with a reference for the caller. NULL without memory. The mutex is held."""
    cdef bint made = cut_at(latest, first, newest, MAX_CUTS)
    # A newer order will do: iterators compare sequence numbers.
    if made and not reaches(latest, chunk, offset):
        # The count is read after (chunk, offset), so it is never too small.
        made = extend(latest, first, lsm_load64(n_entries), chunk, offset)
    if not made:
        return NULL
    lsm_fetch_add32(&latest.order.refs, 1)
    return latest.order


cdef MemOrder* latest_order(LatestOrder* latest, ArenaChunk* first, const uint64_t* n_entries, ArenaChunk* chunk,
                            size_t offset, const MemRangeTombstone* newest) noexcept nogil:
    cdef MemOrder* order
    pthread_mutex_lock(&latest.mutex)
    order = reach(latest, first, n_entries, chunk, offset, newest)
    pthread_mutex_unlock(&latest.mutex)
    return order


cdef uint64_t entries_to_move(const MemOrder* order, uint64_t n_entries) noexcept nogil:
    """How many entries an extension to `n_entries` sorts, and merges with the runs before them."""
    cdef uint64_t length = n_entries, moved
    cdef int i
    if order == NULL:
        return n_entries
    for i in range(order.n_runs):
        length -= order.runs[i].n
    moved = length
    i = order.n_runs - 1
    while i >= 0 and order.runs[i].n < MERGE_BELOW * length:
        length += order.runs[i].n
        moved += length
        i -= 1
    return moved


cdef bint latest_order_short(LatestOrder* latest, ArenaChunk* first, const uint64_t* n_entries, ArenaChunk* chunk,
                             size_t offset, const MemRangeTombstone* newest, MemOrder** out) noexcept nogil:
    cdef bint short
    if pthread_mutex_trylock(&latest.mutex) != 0:
        return False
    short = entries_to_move(latest.order, lsm_load64(n_entries)) <= SHORT_SORT
    if short:
        out[0] = reach(latest, first, n_entries, chunk, offset, newest)
    pthread_mutex_unlock(&latest.mutex)
    return short


# --- walking a run ---------------------------------------------------------------------------------------------------

cdef inline bint item_same_key(const MemRun* run, size_t i, size_t j) noexcept nogil:
    cdef const MemEntry* a
    cdef const MemEntry* b
    if run.items[i].prefix != run.items[j].prefix:
        return False
    a = run.items[i].entry
    b = run.items[j].entry
    return entry_has_key(a, entry_key(b), entry_klen(b))


cdef inline ssize_t last_version(const MemRun* run, ssize_t at, ssize_t direction) noexcept nogil:
    """The last version of the same key in a direction, 1 or -1. Galloping search: a key that is written all the time has
    thousands of versions."""
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
    """Index of the next key."""
    return last_version(run, at, 1) + 1


cdef inline size_t versions_begin(const MemRun* run, size_t at) noexcept nogil:
    """Index of the newest version of the key."""
    return last_version(run, at, -1)


cdef size_t first_visible(const MemRun* run, size_t at, size_t end, uint64_t snapshot) noexcept nogil:
    """The newest visible one of a key's versions [at, end), or `end`."""
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
    """Moves from the first version of a key to its newest visible one, or to the next key that has one."""
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
    """Moves from the last version of a key to its newest visible one, or back to a key that has one."""
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


cdef inline void prefetch_entry(const MemRun* run, size_t i) noexcept nogil:
    """Prefetches three lines: an entry with a value of about a hundred bytes."""
    cdef const char* p = <const char*>run.items[i].entry
    lsm_prefetch(p)
    lsm_prefetch(p + 64)
    lsm_prefetch(p + 128)


cdef void run_seek(RunIter* it, const char* key, size_t klen) noexcept nogil:
    cdef size_t i
    it.pos = run_lower_bound(it.run, key, klen)
    # Neighbours in key order lie far apart in the arena, so the entries of a short scan are prefetched.
    for i in range(it.pos, min(it.pos + PREFETCH_DISTANCE, it.run.n)):
        prefetch_entry(it.run, i)
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
    if at + PREFETCH_DISTANCE < n:
        prefetch_entry(it.run, at + PREFETCH_DISTANCE)
    it.pos = versions_end(it.run, at)
    run_settle_forward(it)


cdef void run_prev(RunIter* it) noexcept nogil:
    cdef size_t begin = versions_begin(it.run, it.pos)
    if begin == 0:
        it.valid = False
        return
    it.pos = begin - 1
    run_settle_backward(it)
