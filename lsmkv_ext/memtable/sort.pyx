from libc.string cimport memcpy, memset

from lsmkv_ext.port.atomics cimport lsm_prefetch
from lsmkv_ext.port.compare cimport lsm_prefix8

cdef enum:
    INSERTION_SORT = 32         # items
    PREFETCH_DISTANCE = 8


cdef size_t common_prefix(const SortItem* a, size_t n, size_t known) noexcept nogil:
    cdef const char* first = entry_key(a[0].entry)
    cdef size_t shared = entry_klen(a[0].entry)
    cdef size_t i, j
    cdef const char* key
    cdef size_t klen
    for i in range(1, n):
        if i + PREFETCH_DISTANCE < n:
            lsm_prefetch(entry_key(a[i + PREFETCH_DISTANCE].entry))
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
    cdef size_t i, klen
    cdef size_t length = entry_klen(a[0].entry)
    cdef bint decisive = length <= skip + 8
    for i in range(n):
        if i + PREFETCH_DISTANCE < n:
            lsm_prefetch(entry_key(a[i + PREFETCH_DISTANCE].entry))
        klen = entry_klen(a[i].entry)
        decisive = decisive and klen == length
        a[i].prefix = lsm_prefix8(entry_key(a[i].entry) + skip, klen - skip)
    return decisive


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
            continue    # equal in all items
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


cdef void sort_group(SortItem* a, SortItem* scratch, size_t n, size_t skip, uint64_t prefix) noexcept nogil:
    """Sorts items of equal prefix by the bytes after it, where all keys are longer. Keys that end within the zero-padded prefix
    are compared whole."""
    cdef size_t i, deeper
    cdef bint deep = True
    for i in range(n):
        if entry_klen(a[i].entry) < skip + 8:
            deep = False
            break
    if deep:
        deeper = common_prefix(a, n, skip + 8)
        # Versions of one key are a group that no prefix splits.
        deep = deeper < entry_klen(a[0].entry)
    if not deep:
        merge_sort(a, scratch, n)
        return
    sort_items(a, scratch, n, deeper, cut_prefixes(a, n, deeper))
    for i in range(n):
        a[i].prefix = prefix


cdef void sort_items(SortItem* a, SortItem* scratch, size_t n, size_t skip, bint decisive) noexcept nogil:
    cdef size_t i, j
    cdef SortItem* sorted_
    cdef uint64_t prefix
    if n <= INSERTION_SORT:
        insertion_sort(a, n)
        return
    sorted_ = radix_sort(a, scratch, n)
    if sorted_ != a:
        memcpy(a, sorted_, n * sizeof(SortItem))
    if decisive:
        return          # the radix sort is stable: the versions of each key are still newest first
    i = 0
    while i < n:
        j = i + 1
        prefix = a[i].prefix
        while j < n and a[j].prefix == prefix:
            j += 1
        if j - i > INSERTION_SORT:
            sort_group(a + i, scratch, j - i, skip, prefix)
        elif j - i > 1:
            insertion_sort(a + i, j - i)
        i = j
