# One data block: sorted entries with prefix compression and restart points, plus one tag byte per entry (from the key's
# hash) so that a point read finds its entry without a search. Byte grid: docs/format.md. Writer and reader share this file.
#
# Entry: shared, unshared, value length, (seq - block base seq) << 1 | is_delete, then key suffix and value.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from lsmkv_ext.status cimport Status

ctypedef struct Entry:            # borrowed: key and value live as long as the block (or iterator buffer) they came from
    const char* key
    size_t klen
    const char* value
    size_t vlen
    uint64_t seq
    int is_delete

# --- contract, to be completed by the struct definitions ---
# BlockC: decoded and checked in memory: raw bytes + pins (atomic int) + cache links + usage counter.
# cdef int block_get(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil
#     1 found (out.key may be NULL), 0 not in this block, negative: damaged. Hash is with the TABLE's seed.
# BlockIter over one BlockC: block_iter_init/seek_first/seek_last/seek(key: first entry >= key)/seek_before(last entry < key... or <=)/next/prev;
#     .valid, .entry
# BlockBuilder: add (in order), finish -> raw bytes
