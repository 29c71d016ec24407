# Sync slots: two places in a file where a writer stores, alternately, how much of a file is known to be on disk. Logs, SYNCED and
# manifests have such slots; a SlotLayout describes theirs. Byte grids: docs/format.md.
#
# A slot is a row of u64 fields and their XXH3. Stores are counted from 1; odd ones go to slot B, even ones to slot A, and the
# good slot with the larger count is valid. A store interrupted by a kill damages one slot and leaves the other good. The slots
# are never synced: they may lag behind, but are never ahead.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport all_zero, get_u64, put_u64

cdef enum:
    MAX_SLOT_SIZE = 32
    NO_FIELD = -1

ctypedef struct SlotLayout:
    uint64_t a              # offset of slot A
    uint64_t b
    int number_at           # offset of the field in a slot, or NO_FIELD: the seed stands for the file's number
    int synced_at
    int count_at
    int checksum_at         # after all fields
    uint64_t seed

ctypedef struct SyncSlot:
    uint64_t number         # of the file described; 0 without that field
    uint64_t synced         # offset
    uint64_t count


cdef inline uint64_t slot_size(const SlotLayout* layout) noexcept nogil:
    return layout.checksum_at + 8


cdef inline uint64_t slot_offset(const SlotLayout* layout, uint64_t count) noexcept nogil:
    """Where the store with this count goes."""
    return layout.b if count % 2 else layout.a


cdef inline void slot_encode(const SlotLayout* layout, const SyncSlot* slot, char* out) noexcept nogil:
    """Writes slot_size bytes."""
    if layout.number_at != NO_FIELD:
        put_u64(out + layout.number_at, slot.number)
    put_u64(out + layout.synced_at, slot.synced)
    put_u64(out + layout.count_at, slot.count)
    put_u64(out + layout.checksum_at, xxh3(out, layout.checksum_at, layout.seed))


cdef inline bint slot_decode(const SlotLayout* layout, const char* p, SyncSlot* slot) noexcept nogil:
    """False if the slot is blank or damaged."""
    slot.count = get_u64(p + layout.count_at)
    if slot.count == 0 or get_u64(p + layout.checksum_at) != xxh3(p, layout.checksum_at, layout.seed):
        return False
    slot.number = get_u64(p + layout.number_at) if layout.number_at != NO_FIELD else 0
    slot.synced = get_u64(p + layout.synced_at)
    return True


cdef inline bint slots_newest(const SlotLayout* layout, const char* head, SyncSlot* slot) noexcept nogil:
    """The good slot with the larger count; False where none is good."""
    cdef SyncSlot other
    cdef bint found = slot_decode(layout, head + layout.a, slot)
    if slot_decode(layout, head + layout.b, &other) and (not found or other.count > slot.count):
        slot[0] = other
        found = True
    return found


cdef inline bint slot_damaged(const SlotLayout* layout, const char* p) noexcept nogil:
    """Neither good nor blank."""
    cdef SyncSlot slot
    return not slot_decode(layout, p, &slot) and not all_zero(p, slot_size(layout))


cdef class SyncSlots:
    cdef SlotLayout layout
    cdef bint within(self, bytes head)
