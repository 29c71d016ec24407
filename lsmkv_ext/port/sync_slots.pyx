cdef class SyncSlots:
    """Two "known synced" slots at the offsets `a` and `b` of a file's head.

    `count_at` and `synced_at` are the offsets of the fields in a slot; the checksum follows them.
    """

    def __cinit__(self, uint64_t a, uint64_t b, *, int count_at, int synced_at, uint64_t seed):
        self.layout.a = a
        self.layout.b = b
        self.layout.number_at = NO_FIELD
        self.layout.count_at = count_at
        self.layout.synced_at = synced_at
        self.layout.checksum_at = max(count_at, synced_at) + 8
        self.layout.seed = seed
        if slot_size(&self.layout) > MAX_SLOT_SIZE or min(count_at, synced_at) < 0:
            raise ValueError(f"a slot has at most {MAX_SLOT_SIZE} bytes")

    @property
    def size(self):
        """Bytes of one slot."""
        return slot_size(&self.layout)

    @property
    def offsets(self):
        return self.layout.a, self.layout.b

    def encode(self, uint64_t count, uint64_t synced):
        """Return the offset of the slot for this store, and its bytes."""
        cdef SyncSlot slot
        cdef char out[MAX_SLOT_SIZE]
        slot.number = 0
        slot.synced = synced
        slot.count = count
        slot_encode(&self.layout, &slot, out)
        return slot_offset(&self.layout, count), out[:slot_size(&self.layout)]

    cdef bint within(self, bytes head):
        return <uint64_t>len(head) >= max(self.layout.a, self.layout.b) + slot_size(&self.layout)

    def newest(self, bytes head not None):
        """Return (count, synced offset) of the valid slot, or None if no slot is good."""
        cdef SyncSlot slot
        if not self.within(head) or not slots_newest(&self.layout, head, &slot):
            return None
        return slot.count, slot.synced

    def damaged(self, bytes head not None):
        """Return the offsets of the slots that are neither good nor blank."""
        cdef const char* p = head
        if not self.within(head):
            return []
        return [at for at in self.offsets if slot_damaged(&self.layout, p + <uint64_t>at)]
