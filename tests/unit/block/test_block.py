"""One data block: what goes in comes out, both ways and by every kind of search; damage is refused."""

import bisect

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from lsmkv_ext.block.view import BlockView, build_block

keys = st.one_of(
    st.binary(max_size=6),
    st.text(alphabet="ab", max_size=12).map(lambda s: s.encode()),
    st.integers(0, 300).map(lambda n: b"x" * 200 + b"%d" % n),
)
PLAIN, EXPIRY, DELETE = 0, 1, 4  # kinds of entries (lsmkv_ext/entry.pxd)
values = st.one_of(
    st.tuples(st.binary(max_size=200), st.just(PLAIN)),
    st.tuples(st.just(b""), st.just(DELETE)),
    st.tuples(
        st.builds(lambda at, v: at.to_bytes(8, "little") + v, st.integers(1, 2**62), st.binary()), st.just(EXPIRY)
    ),
)
rows = st.dictionaries(
    keys,
    st.builds(lambda value, seq: (value[0], seq, value[1]), values, st.integers(0, 2**62 - 1)),
    min_size=1,
    max_size=60,
)


def digest(key: bytes) -> int:
    return xxhash.xxh3_64_intdigest(key, 7)


def build(table: dict, interval: int) -> bytes:
    return build_block([(k, *table[k], digest(k)) for k in sorted(table)], interval)


def expected(table: dict, key: bytes):
    return (key, *table[key])


@settings(max_examples=150, deadline=None)
@given(rows, st.sampled_from([1, 2, 3, 8, 16, 64]))
def test_forward_and_backward(table, interval):
    block = BlockView(build(table, interval))
    order = sorted(table)
    assert len(block) == len(order)
    got = [block.first()]
    while (entry := block.next()) is not None:
        got.append(entry)
    assert got == [expected(table, k) for k in order]
    got = [block.last()]
    while (entry := block.prev()) is not None:
        got.append(entry)
    assert got == [expected(table, k) for k in reversed(order)]


@settings(max_examples=150, deadline=None)
@given(rows, st.sampled_from([1, 4, 16]), st.lists(keys, max_size=20))
def test_get_and_seek(table, interval, others):
    block = BlockView(build(table, interval))
    order = sorted(table)
    for key in [*order, *others]:
        want = table.get(key)
        assert block.get(key, digest(key)) == want
        assert block.get(key, digest(key), portable=True) == want
        at = bisect.bisect_left(order, key)
        assert block.seek(key) == (expected(table, order[at]) if at < len(order) else None)


@settings(max_examples=100, deadline=None)
@given(rows, st.sampled_from([2, 8]), st.data())
def test_changes_of_direction(table, interval, data):
    block = BlockView(build(table, interval))
    order = sorted(table)
    at = data.draw(st.integers(0, len(order) - 1))
    assert block.seek(order[at]) == expected(table, order[at])
    for forward in data.draw(st.lists(st.booleans(), max_size=30)):
        at += 1 if forward else -1
        if not 0 <= at < len(order):
            assert (block.next() if forward else block.prev()) is None
            return
        assert (block.next() if forward else block.prev()) == expected(table, order[at])


def test_equal_tags_are_told_apart():
    entries = [(b"%04d" % i, b"v%d" % i, i, False, 5 << 56) for i in range(100)]
    block = BlockView(build_block(entries, 8))
    assert block.tags() == b"\x05" * 100
    for key, value, seq, _, tag in entries:
        assert block.get(key, tag) == (value, seq, False)
    assert block.get(b"0050x", 5 << 56) is None
    assert block.get(b"0050", 6 << 56) is None


@pytest.mark.parametrize(("seqs", "width"), [([9, 9], 0), ([0, 127], 1), ([0, 128], 2), ([0, 2**62 - 1], 8)])
def test_sequence_numbers_take_the_bytes_they_need(seqs, width):
    block = BlockView(build_block([(b"%d" % i, b"", s, False, 0) for i, s in enumerate(seqs)]))
    assert block.seq_width == width
    assert [block.first()[2], block.next()[2]] == seqs


def test_large_lengths():
    big = {b"": (b"", 1, PLAIN), b"k" * 65535: (b"v" * 300_000, 2, PLAIN), b"k" * 65534: (b"", 3, DELETE)}
    block = BlockView(build(big, 16))
    for key, value in big.items():
        assert block.get(key, digest(key)) == value
    assert block.last() == (b"k" * 65535, b"v" * 300_000, 2, PLAIN)


def test_every_cut_and_every_flip_is_refused_or_harmless():
    """The structure check alone (no checksum here) keeps every later read inside the block."""
    kinds = [(b"", DELETE), (b"value", PLAIN), (b"\1" * 8 + b"value", EXPIRY)]
    table = {b"key%03d" % i: (kinds[i % 3][0], i, kinds[i % 3][1]) for i in range(20)}
    raw = build(table, 4)
    for n in range(len(raw)):
        with pytest.raises(ValueError, match=r"block|key|value|restart"):
            BlockView(raw[:n])
    refused = 0
    for at in range(len(raw)):
        for bit in (1, 0x80):
            damaged = bytearray(raw)
            damaged[at] ^= bit
            try:
                block = BlockView(bytes(damaged))
            except ValueError:
                refused += 1
                continue
            entry = block.first()
            for _ in range(len(block) - 1):
                assert entry is not None
                entry = block.next()
            block.last()
            block.seek(b"key010")
            block.get(b"key010", digest(b"key010"))
    assert refused > len(raw) // 4


def test_an_empty_block_is_refused():
    with pytest.raises(ValueError, match="header"):
        BlockView(build_block([]))
