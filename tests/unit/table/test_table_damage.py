"""Every byte of a table file damaged in turn: an error that names the place, or the right answers."""

import pytest
from tables import listed, numbered, write_table

from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table

RANGES = ((b"key00000010", b"key00000020", 5000), (b"zz", b"zzz", 6000))


def observe(path, rows):
    """None where the table behaves as if nothing had happened, else the CorruptionError."""
    try:
        table = Table(path, 1, BlockCache(4000))
        assert table.range_tombstones == [*RANGES]
        assert list(table.entries()) == listed(rows)
        assert list(table.entries(reverse=True, mode="compaction")) == listed(rows)[::-1]
        for key, want in rows.items():
            assert table.may_contain(key)
            assert table.get(key) == want
    except CorruptionError as error:
        return error
    return None


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_byte_flip(tmp_path, compression, flip):
    rows = numbered(40)
    good, bad = tmp_path / "good.sst", tmp_path / "bad.sst"
    write_table(good, rows, RANGES, block_size=300, compression=compression, seed=3)
    raw = good.read_bytes()
    assert observe(good, rows) is None
    filter_end = 0
    sound = Table(good)
    header, bits = sound.filter_bytes()
    filter_at = raw.index(bits, sound.properties["data_bytes"])
    filter_end = filter_at + len(bits)
    header_at = len(raw) - 160
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= flip
        bad.write_bytes(damaged)
        error = observe(bad, rows)
        if filter_at <= at < filter_end or header_at <= at < header_at + len(header):
            assert error is None
            info = Table(bad).filter_info
            assert not info["usable"]
            assert info["problem"]
            assert verify_table(Table(bad))[0]["what"].startswith("filter unusable")
        elif error is None:
            # The only bytes without a meaning: padding in front of the filter.
            assert sound.properties["data_bytes"] < at < filter_at
            assert raw[at] == 0
        else:
            assert error.file == str(bad)
            assert 0 <= error.offset <= len(raw)


def test_every_truncation(tmp_path):
    rows = numbered(40)
    good, bad = tmp_path / "good.sst", tmp_path / "bad.sst"
    write_table(good, rows, RANGES, block_size=300)
    raw = good.read_bytes()
    for n in range(len(raw)):
        bad.write_bytes(raw[:n])
        assert isinstance(observe(bad, rows), CorruptionError)


def test_a_block_at_the_wrong_place(tmp_path):
    """Blocks of equal size swapped: each has its own checksum right, but not for that offset."""
    rows = {b"%04d" % i: (b"v" * 50, 1) for i in range(100)}
    path = tmp_path / "t.sst"
    write_table(path, rows, block_size=200, compression=None)
    by_size: dict[int, list[dict]] = {}
    for block in Table(path).block_layout():
        by_size.setdefault(block["size"], []).append(block)
    first, second, *_ = max(by_size.values(), key=len)
    raw = bytearray(path.read_bytes())
    a, b, n = first["offset"], second["offset"], first["size"]
    raw[a : a + n], raw[b : b + n] = raw[b : b + n], raw[a : a + n]
    path.write_bytes(raw)
    table = Table(path)
    findings = verify_table(table)
    assert [f["offset"] for f in findings] == [a, b]
    with pytest.raises(CorruptionError) as caught:
        list(table.entries())
    assert caught.value.offset == a


def test_filter_of_another_table_is_not_used(tmp_path):
    """Same size, sound checksums, but other keys: the seed tells."""
    for name, seed in (("a", 1), ("b", 2)):
        write_table(tmp_path / name, numbered(100), seed=seed, compression=None)
    a, b = (tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()
    assert len(a) == len(b)
    header, bits = Table(tmp_path / "b").filter_bytes()
    at = b.index(bits, Table(tmp_path / "b").properties["data_bytes"])
    mixed = bytearray(a)
    mixed[at : at + len(bits)] = bits
    mixed[-160 : -160 + len(header)] = header
    (tmp_path / "a").write_bytes(mixed)
    table = Table(tmp_path / "a")
    assert not table.filter_info["usable"]
    assert table.may_contain(b"never written")
