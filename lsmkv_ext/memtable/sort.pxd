# Sorts the entries of a memtable by (key, newest first).
#
# An item has 8 bytes of its key, the prefix: most comparisons read no entry. The prefixes of an array all start at `skip`, after
# the bytes that all of its keys share.

from libc.stdint cimport uint64_t

from lsmkv_ext.memtable.arena cimport MemEntry, entry_key, entry_klen
from lsmkv_ext.port.compare cimport lsm_compare

ctypedef struct SortItem:
    uint64_t prefix             # key bytes [skip, skip + 8), big-endian, zero padded
    MemEntry* entry

# Length of the prefix that all n keys share; the caller knows that it is at least `known`.
cdef size_t common_prefix(const SortItem* a, size_t n, size_t known) noexcept nogil
# Sets the prefixes to the bytes at `skip`. Returns whether they are decisive: all keys have the same length and end within them,
# so equal prefixes mean equal keys.
cdef bint cut_prefixes(SortItem* a, size_t n, size_t skip) noexcept nogil
# Sorts n items that are newest first and whose prefixes start at `skip`; `decisive` is what cut_prefixes returned. `scratch` has
# room for n items.
cdef void sort_items(SortItem* a, SortItem* scratch, size_t n, size_t skip, bint decisive) noexcept nogil


cdef inline int item_compare(const SortItem* a, const SortItem* b) noexcept nogil:
    """(key, newest first); both prefixes are cut at the same place."""
    cdef int r
    if a.prefix != b.prefix:
        return -1 if a.prefix < b.prefix else 1
    r = lsm_compare(entry_key(a.entry), entry_klen(a.entry), entry_key(b.entry), entry_klen(b.entry))
    if r:
        return r
    return -1 if a.entry.seq > b.entry.seq else (1 if a.entry.seq < b.entry.seq else 0)
