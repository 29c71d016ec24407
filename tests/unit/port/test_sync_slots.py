"""The codec of "known synced" slots: the newest good slot holds, a torn store leaves the older one."""

import pytest
import xxhash

from lsmkv_ext.port.sync_slots import SyncSlots

SLOTS = SyncSlots(8, 64, count_at=0, synced_at=8, seed=42)
HEAD_SIZE = 96


def stored(n: int) -> bytes:
    """A head after n stores; the i-th says 1000 * i."""
    head = bytearray(HEAD_SIZE)
    for count in range(1, n + 1):
        offset, slot = SLOTS.encode(count, 1000 * count)
        head[offset : offset + len(slot)] = slot
    return bytes(head)


def test_bytes():
    offset, slot = SLOTS.encode(3, 5)
    fields = (3).to_bytes(8, "little") + (5).to_bytes(8, "little")
    assert offset == 64
    assert slot == fields + xxhash.xxh3_64_intdigest(fields, seed=42).to_bytes(8, "little")
    assert len(slot) == SLOTS.size
    assert SLOTS.encode(4, 5)[0] == 8
    assert SLOTS.offsets == (8, 64)


def test_field_order_and_seed_are_the_layouts():
    other = SyncSlots(8, 64, count_at=8, synced_at=0, seed=42)
    assert other.encode(3, 5)[1][:16] == SLOTS.encode(5, 3)[1][:16]
    assert SyncSlots(8, 64, count_at=0, synced_at=8, seed=43).newest(stored(2)) is None


def test_stores_take_turns_and_the_newest_holds():
    assert SLOTS.newest(stored(0)) is None
    for n in range(1, 6):
        assert SLOTS.newest(stored(n)) == (n, 1000 * n)
        assert SLOTS.damaged(stored(n)) == []


@pytest.mark.parametrize("newest", [4, 5])
def test_damage_in_a_slot_leaves_the_other(newest):
    head = stored(newest)
    place = SLOTS.encode(newest, 0)[0]
    for at in SLOTS.offsets:
        for byte in range(SLOTS.size):
            damaged = bytearray(head)
            damaged[at + byte] ^= 0x10
            expected = newest - 1 if at == place else newest
            assert SLOTS.newest(bytes(damaged)) == (expected, 1000 * expected)
            assert SLOTS.damaged(bytes(damaged)) == [at]


def test_a_short_head_has_no_slots():
    assert SLOTS.newest(stored(2)[:87]) is None
    assert SLOTS.damaged(stored(2)[:87]) == []
    assert SLOTS.newest(stored(2)[:88]) == (2, 2000)


def test_a_slot_has_at_most_32_bytes():
    with pytest.raises(ValueError, match="32 bytes"):
        SyncSlots(0, 64, count_at=0, synced_at=24, seed=0)
    with pytest.raises(ValueError):
        SyncSlots(0, 64, count_at=-8, synced_at=0, seed=0)
