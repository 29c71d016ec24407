"""Verifies every byte of a table that is used, and reports what is wrong and where."""

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.values.reader import decode_pointer, value_bytes, value_end

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from lsmkv_ext.block.format cimport block_tag
from lsmkv_ext.block.iterator cimport (
    BlockIter,
    block_iter_close,
    block_iter_first,
    block_iter_init,
    block_iter_next,
    block_iter_set,
)
from lsmkv_ext.block.memory cimport BlockC, Entry
from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, expiry_of
from lsmkv_ext.filter.format cimport FILTER_ABSENT, filter_problem_text
from lsmkv_ext.filter.kernel cimport filter_probe
from lsmkv_ext.filter.prefix cimport FILTER_MAX_PREFIXES, filter_prefix_hashes
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.growable cimport GrowBuf, buf_assign, buf_free
from lsmkv_ext.port.status cimport ST_CORRUPT, ST_OK, Status, raise_status, status_clear
from lsmkv_ext.table.format cimport (
    PROP_EXPIRING,
    PROP_EXPIRING_BYTES,
    PROP_KEY_BYTES,
    PROP_MAX_EXPIRY,
    PROP_MAX_SEQ,
    PROP_MIN_EXPIRY,
    PROP_MIN_SEQ,
    PROP_VALUE_BYTES,
    RangeTombstone,
)
from lsmkv_ext.table.reader cimport ReadContext, TableC, table_find_block, table_load_block, table_pread, table_unpin
from lsmkv_ext.table.table cimport Table
from lsmkv_ext.table.tombstones cimport TombstoneWalk, tombstone_walk_init, tombstone_walk_next

cdef enum:
    BAD_ORDER = 1                  # keys not increasing
    BAD_RANGE = 2                  # key outside the properties' key range
    BAD_INDEX = 4                  # the index sends a lookup of the key to another block: a get would miss it
    BAD_TAG = 8                    # tag byte is not the key's hash: a get would miss it
    BAD_FILTER = 16                # the filter denies a key or a prefix of it: a get or scan would miss it

cdef dict _PROBLEMS = {
    BAD_ORDER: "keys out of order",
    BAD_RANGE: "key outside the key range of the properties",
    BAD_INDEX: "key in another block than the index says",
    BAD_TAG: "hash tag does not match its key",
    BAD_FILTER: "filter denies a key of the table",
}

ctypedef struct Totals:
    uint64_t entries, deletes, key_bytes, value_bytes, min_seq, max_seq
    uint64_t expiring, min_expiry, max_expiry, expiring_bytes


cdef int _entry_problems(TableC* t, const BlockC* b, uint32_t block, uint32_t i, const Entry* e,
                         const GrowBuf* last, bint first) noexcept nogil:
    cdef uint64_t hash = xxh3(e.key, e.klen, t.seed)
    cdef int found = 0
    if not first and lsm_compare(last.data, last.len, e.key, e.klen) >= 0:
        found |= BAD_ORDER
    if lsm_compare(e.key, e.klen, t.smallest, t.smallest_len) < 0 \
            or lsm_compare(e.key, e.klen, t.largest, t.largest_len) > 0:
        found |= BAD_RANGE
    if _misplaced(t, block, e):
        found |= BAD_INDEX
    if <uint8_t>b.data[b.tags_at + i] != block_tag(hash):
        found |= BAD_TAG
    if not filter_probe(&t.filter, hash) or not _has_prefixes(t, e):
        found |= BAD_FILTER
    return found


cdef bint _has_prefixes(TableC* t, const Entry* e) noexcept nogil:
    """Returns whether the filter passes all prefixes of the key."""
    cdef uint64_t hashes[FILTER_MAX_PREFIXES]
    cdef int n, i
    if not t.filter.usable:
        return True
    n = filter_prefix_hashes(t.filter.prefix_kind, t.filter.prefix_arg, e.key, e.klen, t.filter.seed, hashes)
    for i in range(n):
        if not filter_probe(&t.filter, hashes[i]):
            return False
    return True


cdef bint _misplaced(TableC* t, uint32_t block, const Entry* e) noexcept nogil:
    """Returns whether the index sends a lookup of this key to another block."""
    return table_find_block(t, e.key, e.klen) != block


cdef void _count_expiry(Totals* n, const Entry* e) noexcept nogil:
    cdef uint64_t expiry = expiry_of(e.value)
    n.min_expiry = min(n.min_expiry, expiry) if n.expiring else expiry
    n.max_expiry = max(n.max_expiry, expiry)
    n.expiring += 1
    n.expiring_bytes += e.klen + e.vlen


cdef int _check_block(TableC* t, const BlockC* b, uint32_t block, BlockIter* it, GrowBuf* last,
                      Totals* n) noexcept nogil:
    """Returns the problems of the block's entries, ORed together; -1 if out of memory."""
    cdef int found = 0
    cdef uint32_t i = 0
    if block_iter_set(it, b) != ST_OK:
        return -1
    block_iter_first(it)
    while it.valid:
        found |= _entry_problems(t, b, block, i, &it.entry, last, n.entries == 0)
        if buf_assign(last, it.entry.key, it.entry.klen) != 0:
            return -1
        n.entries += 1
        n.deletes += it.entry.kind == ENTRY_DELETE
        if it.entry.kind & ENTRY_EXPIRY:
            _count_expiry(n, &it.entry)
        n.key_bytes += it.entry.klen
        n.value_bytes += it.entry.vlen
        n.min_seq = min(n.min_seq, it.entry.seq)
        n.max_seq = max(n.max_seq, it.entry.seq)
        block_iter_next(it)
        i += 1
    return found


cdef dict _finding(uint64_t offset, str what):
    return {"offset": offset, "what": what}


cdef list _compare_totals(TableC* t, Totals* n):
    """Compares contents and properties. Only for a table whose blocks could all be read."""
    cdef const uint64_t* stored = t.props.numbers
    cdef RangeTombstone r
    cdef TombstoneWalk walk
    out = []
    tombstone_walk_init(&walk, &t.tombstones)
    while t.global_seq == 0 and tombstone_walk_next(&walk, &r):
        n.min_seq = min(n.min_seq, r.seq)
        n.max_seq = max(n.max_seq, r.seq)
    if n.min_seq > n.max_seq:
        n.min_seq = 0
    pairs = [
        ("n_entries", n.entries, t.n_entries),
        ("n_deletes", n.deletes, t.n_deletes),
        ("key_bytes", n.key_bytes, stored[PROP_KEY_BYTES]),
        ("value_bytes", n.value_bytes, stored[PROP_VALUE_BYTES]),
        ("expiring", n.expiring, stored[PROP_EXPIRING]),
        ("min_expiry", n.min_expiry, stored[PROP_MIN_EXPIRY]),
        ("max_expiry", n.max_expiry, stored[PROP_MAX_EXPIRY]),
        ("expiring_bytes", n.expiring_bytes, stored[PROP_EXPIRING_BYTES]),
    ]
    if t.global_seq == 0 or t.tombstones.n == 0:
        pairs.append(("min_seq", n.min_seq, stored[PROP_MIN_SEQ]))
        pairs.append(("max_seq", n.max_seq, stored[PROP_MAX_SEQ]))
    for name, counted, claimed in pairs:
        if counted != claimed:
            out.append(_finding(t.footer.props.at, f"properties say {name} = {claimed}, the blocks hold {counted}"))
    return out


cdef bint _verify_block(Table table, uint32_t i, bint deep, BlockIter* it, GrowBuf* last, Totals* n,
                        list out) except -1:
    """Appends findings to `out`. Returns False if the block cannot be read at all."""
    cdef TableC* t = table.c
    cdef ReadContext rc
    cdef Status st
    cdef BlockC* b = NULL
    cdef int code, found = 0
    memset(&rc, 0, sizeof(ReadContext))
    status_clear(&st)
    with nogil:
        code = table_load_block(t, i, &rc, &b, &st)
        if code == ST_OK:
            if deep:
                found = _check_block(t, b, i, it, last, n)
            table_unpin(t, b)
    if code == ST_CORRUPT:
        out.append(_finding(st.offset, f"data block {i}: {st.what.decode()}"))
        return False
    raise_status(&st, table.path)
    if found < 0:
        raise MemoryError("verify")
    for bit, what in _PROBLEMS.items():
        if found & bit:
            out.append(_finding(t.offsets[i], f"data block {i}: {what}"))
    return True


cdef list _verify_padding(Table table):
    """Checks that the bytes between index and filter are zero. Nothing reads them, but a flipped bit means a failing disk."""
    cdef TableC* t = table.c
    cdef uint64_t at = t.footer.index.at + t.footer.index.size
    cdef char padding[4096]
    cdef Status st
    cdef size_t n, i
    status_clear(&st)
    while at < t.footer.filter.at:
        n = <size_t>min(t.footer.filter.at - at, sizeof(padding))
        table_pread(t, padding, n, at, &st)
        raise_status(&st, table.path)
        for i in range(n):
            if padding[i]:
                return [_finding(at + i, "padding before the filter is not zero")]
        at += n
    return []


def value_problems(Table table not None):
    """Returns an iterator over (path, what) for each thing that is wrong with the values that the table points to. Reads all of
    them."""
    counted = {}
    for _, pointer in table.pointers():
        number = decode_pointer(pointer)[0]
        use = counted.setdefault(number, [0, 0, 0])
        use[:] = [use[0] + 1, use[1] + value_bytes(pointer), max(use[2], value_end(pointer))]
        try:
            table.value_log(number).verify(pointer)
        except CorruptionError as error:
            yield error.file or table.path, str(error)
    stated = {use.number: [use.values, use.bytes, use.end] for use in table.meta.value_logs}
    if counted != stated:
        yield table.path, "properties contradict the entries about value logs"


def verify_table(Table table not None, *, deep=True):
    """Returns findings as [{"offset": ..., "what": ...}]; an empty list for a sound table.

    Opening the table has checked footer, properties, index and range tombstones. This checks the filter and every data
    block's checksum and structure; with `deep` also the order of the keys, each key against index, hash tag, filter and
    key range, and the contents against the properties. Reads bypass the cache.
    """
    cdef TableC* t = table.c
    cdef BlockIter it
    cdef GrowBuf last
    cdef Totals n
    cdef bint whole = True
    cdef uint32_t i
    memset(&last, 0, sizeof(GrowBuf))
    memset(&n, 0, sizeof(Totals))
    n.min_seq = <uint64_t>-1
    block_iter_init(&it)
    out = _verify_padding(table)
    if not t.filter.usable and t.filter.problem != FILTER_ABSENT:
        out.append(_finding(t.footer.filter.at, f"filter unusable: {filter_problem_text(t.filter.problem).decode()}"))
    try:
        for i in range(t.n_blocks):
            if not _verify_block(table, i, deep, &it, &last, &n, out):
                whole = False
    finally:
        block_iter_close(&it)
        buf_free(&last)
    if deep and whole:
        out.extend(_compare_totals(t, &n))
    return out
