"""A table's insides for lsmkv-tool: sections, blocks, the filter's fill, the bits of one probe, a measured rate."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from lsmkv_ext.filter.fuse cimport (
    lsm_fuse_bytes,
    lsm_fuse_load,
    lsm_fuse_mix,
    lsm_fuse_place,
    lsm_fuse_print,
    lsm_fuse_xor,
)
from lsmkv_ext.filter.kernel cimport (
    FILTER_BLOCK_BYTES,
    FilterC,
    filter_probe_many,
    filter_size,
    lsm_filter_block,
    lsm_filter_remix,
)
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.table.reader cimport TableC
from lsmkv_ext.table.table cimport Table

from lsmkv_ext.errors import CorruptionError

cdef extern from * nogil:
    const uint32_t* LSM_FILTER_MUL
    int lsm_popcount64 "__builtin_popcountll"(unsigned long long x) noexcept

cdef enum:
    BATCH = 1024


cdef uint64_t _ones(const uint8_t* line) noexcept nogil:
    cdef const uint64_t* words = <const uint64_t*>line
    cdef uint64_t n = 0
    for i in range(FILTER_BLOCK_BYTES // 8):
        n += lsm_popcount64(words[i])
    return n


def filter_fills(Table table not None, uint64_t limit=1 << 14):
    """Returns the share of bits set (0 to 1) in each 64 bytes of the filter in order, averaged over equal stretches if there are
    more than `limit`."""
    cdef const FilterC* f = &table.c.filter
    if not f.usable or limit == 0:
        return []
    cdef uint64_t lines = filter_size(f) // FILTER_BLOCK_BYTES
    cdef uint64_t cells = min(limit, lines)
    cdef uint64_t each = lines // cells, rest = lines % cells
    cdef uint64_t i, at = 0, start, stop, total
    cdef double* fills = <double*>malloc(cells * sizeof(double))
    if fills == NULL:
        raise MemoryError
    with nogil:
        for i in range(cells):
            start = at
            stop = (i + 1) * each + (i + 1) * rest // cells
            total = 0
            while at < stop:
                total += _ones(f.bits + at * FILTER_BLOCK_BYTES)
                at += 1
            fills[i] = <double>total / <double>((stop - start) * FILTER_BLOCK_BYTES * 8)
    try:
        return [fills[i] for i in range(cells)]
    finally:
        free(fills)


cdef dict _fuse_probe(const FilterC* f, uint64_t hash_):
    cdef uint64_t[4] at
    cdef uint64_t mixed = lsm_fuse_mix(hash_, f.fuse.attempt), last = lsm_fuse_bytes(&f.fuse) - 4
    cdef uint32_t mask = (<uint32_t>1 << f.fuse.width) - 1
    lsm_fuse_place(mixed, f.fuse.segments, f.fuse.shift, at)
    slots = [at[i] for i in range(f.fuse.positions)]
    values = [lsm_fuse_load(f.bits, last, slot, f.fuse.width) & mask for slot in slots]
    wanted = lsm_fuse_print(mixed) & mask
    return {"kind": "fuse", "usable": True, "hash": hash_, "slots": slots, "values": values,
            "fingerprint": wanted, "maybe": lsm_fuse_xor(f.bits, last, at, f.fuse.width, f.fuse.positions) & mask == wanted}


def filter_probe_bits(Table table not None, bytes key not None):
    """Returns one probe in detail. Of a Bloom filter: the block, its bits in the order they are tested, and which are set. Of a
    fuse filter: its slots, their values, and the fingerprint of the key."""
    cdef const FilterC* f = &table.c.filter
    cdef const char* data = key
    cdef uint64_t hash_ = xxh3(data, <size_t>len(key), f.seed if f.usable else table.c.seed)
    if not f.usable:
        return {"kind": "none", "usable": False, "hash": hash_, "block": None, "bits": [], "set": [], "maybe": True}
    if f.fuse.width:
        return _fuse_probe(f, hash_)
    cdef uint64_t block = lsm_filter_block(hash_, f.n_blocks)
    cdef const uint8_t* line = f.bits + block * FILTER_BLOCK_BYTES
    cdef uint32_t mixed = lsm_filter_remix(hash_)
    cdef uint32_t bit
    bits, found = [], []
    for i in range(f.k):
        bit = (mixed * LSM_FILTER_MUL[i]) >> 23
        bits.append(bit)
        found.append(bool(line[bit >> 3] >> (bit & 7) & 1))
    return {"kind": "bloom", "usable": True, "hash": hash_, "block": block, "bits": bits, "set": found, "maybe": all(found)}


def filter_positives(Table table not None, uint64_t n, uint64_t salt):
    """Returns how many of `n` random 16-byte keys, all absent but for a chance of 2^-128, the filter lets pass."""
    cdef const FilterC* f = &table.c.filter
    cdef uint64_t hashes[BATCH]
    cdef uint8_t verdicts[BATCH]
    cdef uint64_t key[2]
    cdef uint64_t done = 0, positives = 0
    cdef size_t i, batch
    with nogil:
        while done < n:
            batch = <size_t>min(<uint64_t>BATCH, n - done)
            for i in range(batch):
                key[0] = done + i
                key[1] = salt
                # Random bytes from a counter: two independent hashes of it.
                key[0] = xxh3(key, 16, 0x9e3779b97f4a7c15)
                key[1] = xxh3(key, 16, salt)
                hashes[i] = xxh3(key, 16, f.seed)
            filter_probe_many(f, hashes, batch, verdicts)
            for i in range(batch):
                positives += verdicts[i]
            done += batch
    return positives


def describe_blocks(Table table not None):
    """Returns Table.block_layout with a `problem` in each row: None, or the error that keeps the block from being read. Such a
    row has None for the figures that only the block itself tells."""
    cdef TableC* t = table.c
    cdef uint32_t i
    out = []
    for i, separator in enumerate(table.separators()):
        try:
            row = table._describe_block(i, separator)
            row["problem"] = None
        except CorruptionError as error:
            row = {
                "offset": t.offsets[i],
                "size": t.offsets[i + 1] - t.offsets[i],
                "raw_size": None,
                "n_entries": None,
                "compression": None,
                "separator": separator,
                "cached": False,
                "problem": str(error),
            }
        out.append(row)
    return out


def sections(Table table not None):
    """Returns [(name, offset, size)] of the file's parts in order. Padding and footer are included, so they cover the file."""
    cdef TableC* t = table.c
    parts = [
        ("data", 0, t.footer.data_end),
        ("index", t.footer.index.at, t.footer.index.size),
        ("filter", t.footer.filter.at, t.footer.filter.size),
        ("range tombstones", t.footer.tombstones.at, t.footer.tombstones.size),
        ("properties", t.footer.props.at, t.footer.props.size),
    ]
    out, at = [], 0
    for name, offset, size in sorted(parts, key=lambda part: (part[1], part[2])):
        if size == 0:
            continue
        if offset > at:
            out.append(("padding", at, offset - at))
        out.append((name, offset, size))
        at = offset + size
    out.append(("footer", at, t.file_size - at))
    return out
