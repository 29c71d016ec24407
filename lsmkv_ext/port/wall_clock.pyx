import time

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from lsmkv_ext.port.atomics cimport lsm_cas64, lsm_fetch_add64, lsm_store64
from lsmkv_ext.port.sync_slots cimport NO_FIELD, SlotLayout, SyncSlot, slot_decode, slot_encode, slot_offset, slots_newest

cdef enum:
    SLOT_A = 128
    SLOT_B = 192
    SLOT_SIZE = 24
    STORE_INTERVAL = 1000       # ms

cdef uint64_t LAST_TIME = (<uint64_t>1 << 62) - 1       # the largest expiry is 2^62 and never passes


cdef SlotLayout layout() noexcept nogil:
    cdef SlotLayout out
    out.a = SLOT_A
    out.b = SLOT_B
    out.number_at = NO_FIELD
    out.synced_at = 0           # the clock
    out.count_at = 8
    out.checksum_at = SLOT_SIZE - 8
    out.seed = <uint64_t>0x73796E636C6F636B
    return out


cdef void store(ClockC* clock, uint64_t now) noexcept nogil:
    """Two threads may store at once. If they meet in one slot, that is damaged and the other one applies."""
    cdef SlotLayout slots = layout()
    cdef SyncSlot slot
    cdef char encoded[SLOT_SIZE]
    slot.number = 0
    slot.synced = now
    slot.count = lsm_fetch_add64(&clock.count, 1) + 1
    slot_encode(&slots, &slot, encoded)
    memcpy(clock.page + slot_offset(&slots, slot.count), encoded, SLOT_SIZE)


cdef void clock_advance(ClockC* clock, uint64_t now) noexcept nogil:
    cdef uint64_t latest = lsm_load64(&clock.latest)
    now = min(now, LAST_TIME)
    while latest < now and not lsm_cas64(&clock.latest, latest, now):
        latest = lsm_load64(&clock.latest)


cdef uint64_t clock_now(ClockC* clock) noexcept nogil:
    cdef uint64_t now = lsm_wall_ms() if clock.manual == NULL else lsm_load64(&clock.manual.now)
    cdef uint64_t latest = lsm_load64(&clock.latest)
    cdef uint64_t stored
    now = min(now, LAST_TIME)
    if latest >= now:
        return latest
    clock_advance(clock, now)
    if clock.page != NULL:
        stored = lsm_load64(&clock.stored)
        if now >= stored + STORE_INTERVAL and lsm_cas64(&clock.stored, stored, now):
            store(clock, now)
    return now


cdef void clock_attach(ClockC* clock, char* page) noexcept nogil:
    cdef SlotLayout slots = layout()
    cdef SyncSlot newest
    clock.page = page
    if page != NULL:
        clock.count = newest.count if slots_newest(&slots, page, &newest) else 0
        if lsm_load64(&clock.latest):
            store(clock, clock.latest)
        lsm_store64(&clock.stored, clock.latest)


cdef void clock_erase(char* page) noexcept nogil:
    cdef SlotLayout slots = layout()
    cdef SyncSlot slot
    if slot_decode(&slots, page + SLOT_A, &slot):
        memset(page + SLOT_A, 0, SLOT_SIZE)
    if slot_decode(&slots, page + SLOT_B, &slot):
        memset(page + SLOT_B, 0, SLOT_SIZE)


cdef void clock_set_manual(ClockC* clock, ManualTime* manual) noexcept:
    cdef ManualTime* old = clock.manual
    if manual != NULL:
        manual.refs += 1
    clock.manual = manual
    unref(old)


cdef void unref(ManualTime* manual) noexcept:
    if manual != NULL:
        manual.refs -= 1
        if manual.refs == 0:
            free(manual)


def stored_clock(bytes page not None):
    """Return the time in the bytes of a SYNCED file, in milliseconds; 0 if there is none, or an impossible one."""
    cdef SlotLayout slots = layout()
    cdef SyncSlot newest
    if len(page) < SLOT_B + SLOT_SIZE or not slots_newest(&slots, page, &newest):
        return 0
    return newest.synced if newest.synced <= LAST_TIME else 0


def encode_clock(uint64_t now):
    """Return [(offset, bytes)] of the two slots of a SYNCED file that say `now`."""
    cdef SlotLayout slots = layout()
    cdef SyncSlot slot
    cdef char encoded[SLOT_SIZE]
    out = []
    slot.number = 0
    slot.synced = now
    for count in (1, 2):
        slot.count = count
        slot_encode(&slots, &slot, encoded)
        out.append((slot_offset(&slots, slot.count), encoded[:SLOT_SIZE]))
    return out


cdef class ManualClock:
    """ManualClock(now=None)\n--\n\n\
    A clock that stands still until `advance` is called: for tests of code that uses expiry.

    `now` is in seconds since 1970; None is the time of the system. Pass the clock to `lsmkv.open`; several databases
    may share it.

    >>> clock = lsmkv.ManualClock(1000)
    >>> with lsmkv.open("sessions.db", clock=clock) as sessions:
    ...     sessions.put(b"ada", b"token", ttl=60)
    ...     clock.advance(60)
    ...     sessions.get(b"ada") is None
    True
    """

    def __cinit__(self, now=None):
        self.time = <ManualTime*>malloc(sizeof(ManualTime))
        if self.time == NULL:
            raise MemoryError("clock")
        self.time.refs = 1
        self.time.now = 0
        self.set(time.time() if now is None else now)

    def __dealloc__(self):
        unref(self.time)

    @property
    def now(self):
        """The time, in seconds since 1970.

        >>> lsmkv.ManualClock(1000).now
        1000.0
        """
        return lsm_load64(&self.time.now) / 1000.0

    def set(self, now):
        """Set the time, in seconds since 1970. A database whose clock was ahead of it stays there.

        >>> clock = lsmkv.ManualClock(1000)
        >>> clock.set(2000)
        """
        cdef uint64_t ms = max(0, round(now * 1000))
        lsm_store64(&self.time.now, ms)

    def advance(self, seconds):
        """Let `seconds` pass.

        >>> clock = lsmkv.ManualClock(1000)
        >>> clock.advance(0.5)
        >>> clock.now
        1000.5
        """
        self.set(self.now + seconds)
