"""What the range tombstones of a tree delete in its tables. Reads no block: indexes and range tombstones are in memory."""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.read.tombstones cimport Fragments, fragments_add_table, fragments_flatten, fragments_free
from lsmkv_ext.table.format cimport RangeTombstone
from lsmkv_ext.table.reader cimport TableC, table_ends_before, table_offset_of
from lsmkv_ext.table.table cimport Table

cdef enum:
    MAX_FRAGMENTS = 16 << 10    # range tombstones that one call considers: where there are more, most are small


ctypedef struct Coverage:       # of one table
    uint64_t bytes
    bint whole


cdef size_t first_fragment_over(const Fragments* f, const TableC* t) noexcept nogil:
    """The first fragment that ends after the table's smallest key."""
    cdef size_t lo = 0, hi = f.n, mid
    while lo < hi:
        mid = (lo + hi) >> 1
        if lsm_compare(f.items[mid].stop, f.items[mid].stop_len, t.smallest, t.smallest_len) <= 0:
            lo = mid + 1
        else:
            hi = mid
    return lo


cdef Coverage coverage_of(const Fragments* f, const TableC* t) noexcept nogil:
    """Counts only fragments that are newer than the whole table."""
    cdef Coverage c
    cdef size_t i
    cdef const RangeTombstone* r
    cdef const char* reached = t.smallest       # covered from the smallest key up to here, without a gap
    cdef size_t n = t.smallest_len
    memset(&c, 0, sizeof(c))
    for i in range(first_fragment_over(f, t), f.n):
        r = &f.items[i]
        if table_ends_before(t, r.start, r.start_len):
            break
        if r.seq <= t.max_seq:
            continue
        c.bytes += table_offset_of(t, r.stop, r.stop_len) - table_offset_of(t, r.start, r.start_len)
        if lsm_compare(r.start, r.start_len, reached, n) <= 0:
            reached = r.stop
            n = r.stop_len
    c.whole = table_ends_before(t, reached, n)
    return c


cdef int gather(Fragments* f, list tables) except -1:
    cdef Table table
    for table in tables:
        if f.n + table.c.tombstones.n > MAX_FRAGMENTS:
            break
        if fragments_add_table(f, table.c) != 0:
            raise MemoryError("range tombstones")
    if fragments_flatten(f) != 0:
        raise MemoryError("range tombstones")
    return 0


def covered(list tables not None):
    """Return {number: (bytes, whole)} for the tables that newer range tombstones cover: the bytes of data covered, estimated
    from the index, and whether every entry and range tombstone of the table is.

    With very many range tombstones it considers only those of the first tables.
    """
    cdef Fragments f
    cdef Table table
    cdef Coverage c
    found = {}
    memset(&f, 0, sizeof(f))
    try:
        gather(&f, tables)
        if f.n:
            for table in tables:
                c = coverage_of(&f, table.c)
                if c.bytes or c.whole:
                    found[table.number] = (c.bytes, bool(c.whole))
    finally:
        fragments_free(&f)
    return found
