"""Building and probing binary fuse filters."""

from libc.math cimport floor, log
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext.port.pages cimport HUGE_PAGE, lsm_pages_alloc, lsm_pages_free

cdef extern from * nogil:
    """
    /* A ring of prefetched slots, as in filter/kernel. */
    #define LSM_FUSE_AHEAD 32
    static inline __attribute__((always_inline)) void lsm_fuse_test_many(
            const uint8_t* bits, const lsm_fuse* f, uint32_t width, uint32_t positions, const uint64_t* hashes,
            size_t n, uint8_t* out) {
        uint64_t at[LSM_FUSE_AHEAD][4];
        uint32_t prints[LSM_FUSE_AHEAD];
        const uint32_t segments = f->segments, shift = f->shift, attempt = f->attempt;
        const uint64_t last = lsm_fuse_bytes(f) - 4;
        const size_t ahead = n < LSM_FUSE_AHEAD ? n : LSM_FUSE_AHEAD;
        for (size_t i = 0; i < n + ahead; i++) {
            const size_t ring = i % LSM_FUSE_AHEAD;
            if (i >= ahead) {
                const size_t j = i - ahead, there = j % LSM_FUSE_AHEAD;
                out[j] = (uint8_t)lsm_fuse_test_at(bits, last, at[there], width, positions, prints[there]);
            }
            if (i < n) {
                const uint64_t g = lsm_fuse_mix(hashes[i], attempt);
                lsm_fuse_place(g, segments, shift, at[ring]);
                prints[ring] = lsm_fuse_print(g);
                for (uint32_t k = 0; k < positions; k++) __builtin_prefetch(bits + (at[ring][k] * width >> 3));
            }
        }
    }
    /* The usual widths are constants to the compiler. */
    static void lsm_fuse_test_batch(const uint8_t* bits, const lsm_fuse* f, const uint64_t* hashes, size_t n,
                                    uint8_t* out) {
        if (f->positions == 4) lsm_fuse_test_many(bits, f, f->width, 4, hashes, n, out);
        else if (f->width == 8) lsm_fuse_test_many(bits, f, 8, 3, hashes, n, out);
        else if (f->width == 12) lsm_fuse_test_many(bits, f, 12, 3, hashes, n, out);
        else lsm_fuse_test_many(bits, f, f->width, 3, hashes, n, out);
    }
    """
    void lsm_fuse_test_batch(
        const uint8_t* bits, const FuseGeometry* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept

cdef enum:
    MAX_BUCKET_BITS = 11
    STRETCH = 256                 # slots
    FOUR_FROM = 20000             # numbers of keys whose filters have four positions
    FOUR_TO = 200000
    # Slots per key x 1000 of a large table.
    SLOTS_PER_MILLE = 1125

ctypedef struct Scratch:          # one allocation
    uint64_t* order               # [n] the mixed hashes by first position
    uint32_t* queue               # [slots + 4] then, in the same place, the slots in the order they are emptied
    uint64_t* sums                # [slots] exclusive or of the mixed hashes in a slot
    uint8_t* counts               # [slots] hashes in a slot
    size_t size

# Test hooks; production code never sets them.
cdef int _fail_next = 0
cdef bint _spoil_next = False
cdef uint64_t _min_keys = 20000


# --- geometry --------------------------------------------------------------------------------------------------------

cdef uint64_t fuse_min_keys() noexcept nogil:
    return _min_keys


cdef void fuse_geometry(uint64_t n, uint32_t width, FuseGeometry* g) noexcept nogil:
    """The segment length and the share of empty slots are those of the paper's measurements. With four positions there are fewer
    empty slots, so that one attempt in thirty fails."""
    cdef double keys = <double>max(n, <uint64_t>2)
    cdef bint four = FOUR_FROM <= n <= FOUR_TO
    cdef double slots
    cdef int shift
    cdef uint64_t segments
    if four:
        slots = keys * (0.76 + 0.305 * log(6e5) / log(keys))
        shift = <int>floor(log(keys) / log(2.91) - 0.5)
        segments = (<uint64_t>slots + (<uint64_t>1 << shift) // 2) >> shift
    else:
        slots = keys * max(1.125, 0.875 + 0.25 * log(1e6) / log(keys))
        shift = min(max(<int>floor(log(keys) / log(3.33) + 2.25), <int>FUSE_MIN_SHIFT), <int>FUSE_MAX_SHIFT)
        segments = (<uint64_t>slots >> shift) + 1
    memset(g, 0, sizeof(FuseGeometry))
    g.positions = 4 if four else 3
    g.segments = <uint32_t>(segments - g.positions + 1) if segments >= g.positions else 1
    g.shift = <uint8_t>shift
    g.width = <uint8_t>width


cdef bint fuse_geometry_fits(const FuseGeometry* g, uint64_t slots) noexcept nogil:
    if g.segments == 0 or g.shift < FUSE_MIN_SHIFT or g.shift > FUSE_MAX_SHIFT:
        return False
    if g.width < FUSE_MIN_WIDTH or g.width > FUSE_MAX_WIDTH or (g.positions != 3 and g.positions != 4):
        return False
    return lsm_fuse_slots(g) == slots


cdef uint32_t fuse_width(uint32_t millibits) noexcept nogil:
    cdef uint32_t width = millibits // SLOTS_PER_MILLE
    if width < FUSE_MIN_WIDTH:
        return 0
    return min(width, <uint32_t>FUSE_MAX_WIDTH)


cdef uint32_t fuse_width_between(uint32_t milliwidth, uint64_t number) noexcept nogil:
    # Multiples of the golden ratio, mod 1, are spread evenly.
    cdef uint64_t part = ((number * <uint64_t>0x9E3779B97F4A7C15) >> 32) * 1000 >> 32
    cdef uint32_t width = (milliwidth + <uint32_t>part) // 1000
    return min(max(width, <uint32_t>FUSE_MIN_WIDTH), <uint32_t>FUSE_MAX_WIDTH)


cdef double fuse_fpr(uint32_t width) noexcept nogil:
    return 1.0 / <double>(<uint32_t>1 << width)


# --- build -----------------------------------------------------------------------------------------------------------

cdef void _partition(const uint64_t* hashes, size_t n, int attempt, int bits, uint64_t* out, size_t* ends) noexcept nogil:
    """Writes the hashes to `out` by their top bits, mixed unless `attempt` is negative. ends[i] is the end of bucket i."""
    cdef size_t i, start = 0, here
    cdef uint64_t h
    memset(ends, 0, sizeof(size_t) << bits)
    for i in range(n):
        h = hashes[i] if attempt < 0 else lsm_fuse_mix(hashes[i], attempt)
        ends[h >> (64 - bits)] += 1
    for i in range(<size_t>1 << bits):
        here = ends[i]
        ends[i] = start
        start += here
    for i in range(n):
        h = hashes[i] if attempt < 0 else lsm_fuse_mix(hashes[i], attempt)
        out[ends[h >> (64 - bits)]] = h
        ends[h >> (64 - bits)] += 1


cdef inline void _sift(uint64_t* a, size_t at, size_t n) noexcept nogil:
    cdef uint64_t moved = a[at]
    cdef size_t child = 2 * at + 1
    while child < n:
        if child + 1 < n and a[child + 1] > a[child]:
            child += 1
        if a[child] <= moved:
            break
        a[at] = a[child]
        at = child
        child = 2 * at + 1
    a[at] = moved


cdef void _sort(uint64_t* a, size_t n) noexcept nogil:
    """Heap sort: needs no memory, and no input makes it slow."""
    cdef size_t i
    cdef uint64_t last
    for i in range(n // 2, 0, -1):
        _sift(a, i - 1, n)
    while n > 1:
        n -= 1
        last = a[n]
        a[n] = a[0]
        a[0] = last
        _sift(a, 0, n)


cdef size_t _remove_repeats(uint64_t* hashes, size_t n, uint64_t* room) noexcept nogil:
    """Sorts the hashes, removes repeated ones and returns how many are left."""
    cdef size_t[1 << MAX_BUCKET_BITS] ends
    cdef size_t i, start = 0, kept = 0
    _partition(hashes, n, -1, MAX_BUCKET_BITS, room, ends)
    for i in range(1 << MAX_BUCKET_BITS):
        _sort(room + start, ends[i] - start)
        start = ends[i]
    for i in range(n):
        if i == 0 or room[i] != room[i - 1]:
            hashes[kept] = room[i]
            kept += 1
    return kept


cdef inline bint _fill(const uint64_t* hashes, size_t n, const FuseGeometry* g, int positions, Scratch* s) noexcept nogil:
    """Adds every hash to its slots, roughly in the order of the slots: the writes stay in the cache."""
    cdef size_t[1 << MAX_BUCKET_BITS] ends
    cdef uint64_t[4] at
    cdef uint64_t* order = s.order
    cdef uint64_t* sums = s.sums
    cdef uint8_t* counts = s.counts
    cdef uint32_t segments = g.segments, shift = g.shift
    cdef uint64_t h
    cdef bint overflow = False
    cdef int bits = 1, k
    cdef size_t i
    while bits < MAX_BUCKET_BITS and <uint32_t>1 << bits < segments:
        bits += 1
    _partition(hashes, n, g.attempt, bits, order, ends)
    memset(sums, 0, lsm_fuse_slots(g) * sizeof(uint64_t))
    memset(counts, 0, lsm_fuse_slots(g))
    for i in range(n):
        h = order[i]
        lsm_fuse_place(h, segments, shift, at)
        for k in range(positions):
            sums[at[k]] ^= h
            counts[at[k]] += 1
            overflow |= counts[at[k]] == 0
    return not overflow


cdef inline size_t _peel(const FuseGeometry* g, int positions, Scratch* s) noexcept nogil:
    """Takes hashes out of slots that hold only one until none is left, and records these slots in `queue`. Returns how many: all
    hashes, or the attempt has failed.

    queue[found:head] is free, queue[head:tail] are slots that held one hash when they were added. It follows each slot that it
    empties at once, so it works within a few segments. It has no branch that depends on a count: none could be predicted."""
    cdef uint64_t[4] at
    cdef uint64_t slot, h, taken, slots = lsm_fuse_slots(g), start = 0, stop
    cdef uint64_t* sums = s.sums
    cdef uint8_t* counts = s.counts
    cdef uint32_t* queue = s.queue
    cdef uint32_t segments = g.segments, shift = g.shift
    cdef size_t found = 0, head = 0, tail = 0
    cdef uint32_t single
    cdef int i
    while start < slots:
        stop = min(start + STRETCH, slots)
        for slot in range(start, stop):
            queue[tail] = <uint32_t>slot
            tail += counts[slot] == 1
        while head < tail:
            slot = queue[head]
            head += 1
            single = counts[slot] == 1
            h = sums[slot]
            taken = h & (0 - <uint64_t>single)
            lsm_fuse_place(h, segments, shift, at)
            for i in range(positions):
                sums[at[i]] ^= taken
                counts[at[i]] -= <uint8_t>single
                queue[tail] = <uint32_t>at[i]
                tail += (counts[at[i]] == 1) & single
            sums[slot] = h         # kept for _assign
            queue[found] = <uint32_t>slot
            found += single
        head = tail = found
        start = stop
    return found


cdef void _assign(size_t n, const FuseGeometry* g, const Scratch* s, uint8_t* bits) noexcept nogil:
    """Sets the slots, the last emptied first: no later hash changes the other slots of a hash."""
    cdef uint64_t[4] at
    cdef uint64_t last = lsm_fuse_bytes(g) - 4, h
    cdef uint32_t segments = g.segments, shift = g.shift, width = g.width, value
    cdef uint32_t mask = (<uint32_t>1 << width) - 1
    cdef size_t i
    memset(bits, 0, lsm_fuse_bytes(g))
    for i in range(n, 0, -1):
        h = s.sums[s.queue[i - 1]]
        lsm_fuse_place(h, segments, shift, at)
        # The slot itself is still zero.
        value = (lsm_fuse_print(h) ^ lsm_fuse_xor(bits, last, at, width, g.positions)) & mask
        lsm_fuse_store(bits, last, s.queue[i - 1], width, value)


cdef bint _place_and_peel(const uint64_t* hashes, size_t n, const FuseGeometry* g, Scratch* s) noexcept nogil:
    # A constant each, for the compiler to unroll the loops.
    if g.positions == 4:
        return _fill(hashes, n, g, 4, s) and _peel(g, 4, s) == n
    return _fill(hashes, n, g, 3, s) and _peel(g, 3, s) == n


cdef bint _attempt(const uint64_t* hashes, size_t n, const FuseGeometry* g, Scratch* s, uint8_t* bits) noexcept nogil:
    global _fail_next, _spoil_next
    if _fail_next > 0:
        _fail_next -= 1
        return False
    if not _place_and_peel(hashes, n, g, s):
        return False
    _assign(n, g, s, bits)
    if _spoil_next:
        _spoil_next = False
        memset(bits + lsm_fuse_bytes(g) // 128 * 64, 0, 64)
    return True


cdef int fuse_build(uint64_t* hashes, size_t* n, int attempts, FuseGeometry* g, uint8_t* bits) noexcept nogil:
    cdef Scratch s
    cdef FuseGeometry fewer
    cdef size_t given = n[0]
    cdef bint distinct = False
    cdef int attempt = 0, result = FUSE_FAILED
    cdef uint64_t slots, shared
    cdef char* memory
    fuse_geometry(given, g.width, g)
    slots = lsm_fuse_slots(g)
    if slots > <uint32_t>-1:
        return FUSE_FAILED
    shared = max(8 * <uint64_t>given, 4 * (slots + 4))
    s.size = shared + 9 * slots
    if s.size >= HUGE_PAGE // 2:
        # Whole huge pages: faults of small ones would take a fourth of the time.
        s.size = (s.size + HUGE_PAGE - 1) & ~<size_t>(HUGE_PAGE - 1)
    memory = <char*>lsm_pages_alloc(s.size)
    if memory == NULL:
        return FUSE_NO_MEMORY
    s.order = <uint64_t*>memory
    s.queue = <uint32_t*>memory
    s.sums = <uint64_t*>(memory + shared)
    s.counts = <uint8_t*>(s.sums + slots)
    while attempt < attempts:
        g.attempt = <uint8_t>attempt
        if _attempt(hashes, n[0], g, &s, bits):
            result = FUSE_BUILT
            break
        if not distinct:
            distinct = True
            n[0] = _remove_repeats(hashes, n[0], s.order)
            if n[0] != given:
                # Fewer hashes may need more slots: then those for all of them do, which there is room for.
                fuse_geometry(n[0], g.width, &fewer)
                if lsm_fuse_slots(&fewer) <= slots:
                    g[0] = fewer
                continue
        attempt += 1
    lsm_pages_free(memory, s.size)
    return result


# --- probes ----------------------------------------------------------------------------------------------------------

cdef void fuse_test_batch(
    const uint8_t* bits, const FuseGeometry* g, const uint64_t* hashes, size_t n, uint8_t* out
) noexcept nogil:
    lsm_fuse_test_batch(bits, g, hashes, n, out)


# --- for Python ------------------------------------------------------------------------------------------------------

def width_for(double bits_per_key):
    """Return the fingerprint width of a fuse filter with this many bits per key; 0 if they are too few for one."""
    if not bits_per_key >= 0:
        raise ValueError(f"bits_per_key must not be negative, not {bits_per_key}")
    return fuse_width(<uint32_t>(min(bits_per_key, 1000.0) * 1000 + 0.5))


def min_keys():
    """Return the least number of keys for which a table gets a fuse filter."""
    return _min_keys


def slots_for(uint64_t n_keys):
    """Return the number of slots of a fuse filter for n_keys keys."""
    cdef FuseGeometry g
    if n_keys >> 40:
        raise ValueError("a fuse filter holds fewer than 2**40 keys")
    fuse_geometry(n_keys, FUSE_MIN_WIDTH, &g)
    return lsm_fuse_slots(&g)


cdef uint64_t* _take_hashes(list hashes) except NULL:
    cdef uint64_t* out = <uint64_t*>malloc((len(hashes) + 1) * sizeof(uint64_t))
    cdef Py_ssize_t i
    if out == NULL:
        raise MemoryError("hashes")
    try:
        for i in range(len(hashes)):
            out[i] = hashes[i]
    except BaseException:
        free(out)
        raise
    return out


def build_fuse(list hashes not None, uint32_t width, int attempts=FUSE_ATTEMPTS):
    """For tests: build a filter of `hashes`. Return (segments, shift, width, attempt, positions), the number of distinct hashes
    and the bytes; None if every attempt fails."""
    cdef FuseGeometry g
    cdef size_t n = <size_t>len(hashes)
    cdef uint64_t* copy
    cdef int result
    if not FUSE_MIN_WIDTH <= width <= FUSE_MAX_WIDTH:
        raise ValueError("a fingerprint has 4 to 16 bits")
    fuse_geometry(n, width, &g)
    cdef bytearray bits = bytearray(lsm_fuse_bytes(&g))
    cdef unsigned char[::1] view = bits
    copy = _take_hashes(hashes)
    with nogil:
        result = fuse_build(copy, &n, attempts, &g, &view[0])
    free(copy)
    if result == FUSE_NO_MEMORY:
        raise MemoryError("fuse filter")
    if result == FUSE_FAILED:
        return None
    return (g.segments, g.shift, g.width, g.attempt, g.positions), n, bytes(bits[:lsm_fuse_bytes(&g)])


def probe_fuse(tuple geometry not None, const unsigned char[::1] bits not None, list hashes not None):
    """For tests: test hashes one by one and in a batch. Return both lists."""
    cdef FuseGeometry g
    cdef size_t n = <size_t>len(hashes)
    memset(&g, 0, sizeof(FuseGeometry))
    g.segments, g.shift, g.width, g.attempt, g.positions = geometry
    if not fuse_geometry_fits(&g, lsm_fuse_slots(&g)) or lsm_fuse_bytes(&g) != <uint64_t>bits.shape[0]:
        raise ValueError("the geometry does not fit the bytes")
    cdef bytearray verdicts = bytearray(n + 1)
    cdef unsigned char[::1] out = verdicts
    cdef uint64_t* copy = _take_hashes(hashes)
    fuse_test_batch(&bits[0], &g, copy, n, &out[0])
    single = [bool(lsm_fuse_test(&bits[0], &g, copy[i])) for i in range(n)]
    free(copy)
    return single, [bool(each) for each in verdicts[:n]]


def set_min_keys(uint64_t n):
    """For tests: let tables of n keys get fuse filters. Return the number before."""
    global _min_keys
    before = _min_keys
    _min_keys = n
    return before


def fail_next(int attempts):
    """For tests: let the next attempts to build a filter fail."""
    global _fail_next
    _fail_next = attempts


def spoil_next():
    """For tests: zero 64 bytes of the next filter that is built, as faulty memory might."""
    global _spoil_next
    _spoil_next = True
