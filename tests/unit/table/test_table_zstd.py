"""Tables compressed with zstd: version 2, the same answers, and nothing that a hostile frame can do."""

import os
import random
import struct

import pytest
from hypothesis import given, settings
from tables import keys, listed, numbered, rows_by_key, seal, values, write_table
from test_table_forged import KINDS, mutate, places, use
from test_table_version import set_version, version_of

import lsmkv
from lsmkv_ext.errors import CorruptionError, FormatError
from lsmkv_ext.port import zstd
from lsmkv_ext.table.rebuild import rebuild_table_filter
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table

RANGES = ((b"key00000010", b"key00000020", 5000), (b"zz", b"zzz", 6000))


@pytest.fixture(autouse=True)
def c_path_again():
    yield
    zstd.use("c")


def made(path, rows=None, ranges=RANGES, **options):
    """A table of rows that compress; returns it."""
    rows = numbered(300, 40) if rows is None else rows
    write_table(path, rows, ranges, **{"compression": "zstd", "seed": 3, **options})
    return Table(path, 1)


@settings(max_examples=60)
@given(rows_by_key)
def test_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("zstd") / "t.sst"
    for block_size in (32, 4096):
        table = made(path, rows, block_size=block_size)
        assert list(table.entries()) == listed(rows)
        assert list(table.entries(reverse=True, mode="compaction")) == listed(rows)[::-1]
        assert all(table.get(key) == row for key, row in rows.items())
        assert verify_table(table, deep=True) == []


def test_it_has_version_2_and_says_so(tmp_path):
    path = tmp_path / "t.sst"
    table = made(path)
    assert version_of(path) == 2 and table.properties["version"] == 2
    assert table.properties["compression"] == "zstd"
    assert {block["compression"] for block in table.block_layout()} == {"zstd"}
    assert table.range_tombstones == [*RANGES]


def test_it_is_smaller_than_with_lz4(tmp_path):
    rows = {
        b"key%06d" % i: (b'{"id": %d, "name": "name %d", "active": true}' % (i * 977, i % 90), 1) for i in range(2000)
    }
    assert made(tmp_path / "z.sst", rows).file_size < 0.8 * made(tmp_path / "l.sst", rows, compression="lz4").file_size


def test_each_block_says_its_own_codec(tmp_path):
    """What does not shrink is stored; what zstd shrinks beyond its bound is compressed with LZ4."""
    rows = {b"a": (os.urandom(5000), 1), b"b": (bytes(200_000), 1), b"c": (b"text " * 1000, 1)}
    table = made(tmp_path / "t.sst", rows)
    assert [block["compression"] for block in table.block_layout()] == [None, "lz4", "zstd"]
    assert list(table.entries()) == listed(rows)
    assert table.file_size < 10_000


def test_a_large_index_and_large_blocks(tmp_path):
    rows = {b"k%05d" % i + b"key " * 200: (b"v" * 50, 1) for i in range(2000)}
    rows[b"z"] = (b"one large value, " * 300_000, 1)
    table = made(tmp_path / "t.sst", rows, block_size=64)
    assert list(table.entries()) == listed(rows)


@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_no_flipped_byte_goes_unnoticed(tmp_path, flip):
    rows = numbered(40)
    good, bad = tmp_path / "good.sst", tmp_path / "bad.sst"
    made(good, rows, block_size=300, bits_per_key=0)
    raw = good.read_bytes()
    unnoticed = []
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= flip
        bad.write_bytes(damaged)
        try:
            table = Table(bad, 1)
            assert list(table.entries()) == listed(rows) and table.range_tombstones == [*RANGES]
            unnoticed.append(at)
        except (CorruptionError, FormatError) as error:
            assert error.file == str(bad)
    # The header of the filter, which only disables it.
    assert all(len(raw) - 160 <= at < len(raw) - 96 for at in unnoticed)


def test_every_truncation(tmp_path):
    good, bad = tmp_path / "good.sst", tmp_path / "bad.sst"
    made(good, numbered(40), block_size=300)
    raw = good.read_bytes()
    for n in range(len(raw)):
        bad.write_bytes(raw[:n])
        with pytest.raises(CorruptionError):
            list(Table(bad, 1).entries())


def forge(path, section, change, compression="zstd"):
    """Replaces the payload of a section behind a right checksum, without changing its size."""
    raw = bytearray(path.read_bytes())
    block = Table(path, 1).block_layout()[0]
    at, size = (block["offset"], block["size"]) if section == "data" else places(bytes(raw))[section]
    raw_size, codec = struct.unpack_from("<IB", raw, at + size - 9)
    assert section == "props" or codec == 2 or compression != "zstd"
    payload, raw_size, codec = change(bytes(raw[at : at + size - 9]), raw_size, codec)
    assert len(payload) == size - 9
    raw[at : at + size] = seal(payload, raw_size, codec, KINDS[section], at)
    path.write_bytes(raw)


@pytest.mark.parametrize("section", ["data", "index", "tombstones", "props"])
def test_forged_frames(tmp_path, section):
    path = tmp_path / "t.sst"
    ranges = tuple((b"key%08d" % i, b"key%08d" % (i + 1), 5000) for i in range(0, 300, 2))
    made(path, numbered(1000), ranges, block_size=200)
    good = path.read_bytes()
    rng = random.Random(section)
    refused = 0
    for _ in range(300):
        path.write_bytes(good)

        def change(payload, raw_size, codec):
            changed = bytearray(payload)
            mutate(rng, changed, 0, len(changed))
            return bytes(changed), rng.choice((raw_size, raw_size, 1 << 30, 255 * len(payload))), rng.choice((codec, 2))

        forge(path, section, change)
        try:
            use(path)
        except (CorruptionError, FormatError):
            refused += 1
    assert refused > 150


BOMBS = {
    "a declared size of 1 GiB": lambda p, n, c: (p, 1 << 30, c),
    "a declared size beyond the ratio": lambda p, n, c: (p, 255 * len(p) + 1, c),
    "another size than in the frame": lambda p, n, c: (p, n + 1, c),
    "a window of 1 TiB": lambda p, n, c: (p[:4] + b"\x40\xff" + struct.pack("<H", (n - 256) % 65536) + p[8:], n, c),
    "an unknown codec": lambda p, n, c: (p, n, 3),
    "LZ4, which it is not": lambda p, n, c: (p, n, 1),
}


@pytest.mark.parametrize("section", ["data", "index"])
@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused(tmp_path, section, what):
    path = tmp_path / "t.sst"
    made(path, numbered(3000, 40), block_size=300)
    forge(path, section, BOMBS[what])
    with pytest.raises(CorruptionError):
        list(Table(path, 1).entries())


def test_zstd_in_a_table_of_version_1_is_damage(tmp_path):
    path = tmp_path / "t.sst"
    made(path)
    set_version(path, 1)
    with pytest.raises(CorruptionError, match="version 1"):
        Table(path, 1)


@pytest.mark.parametrize("compression", ["lz4", None])
def test_a_frame_of_zstd_in_another_table_is_damage(tmp_path, compression):
    """The properties say whether a reader needs zstd."""
    path = tmp_path / "t.sst"
    rows = {b"key": (b"text " * 1000, 1)}
    made(path, rows, compression=compression)
    frame = zstd.compress(b"text " * 500)

    def change(payload, raw_size, codec):
        padded = frame + bytes(max(0, len(payload) - len(frame)))
        return padded[: len(payload)], 2500, 2

    forge(path, "data", change, compression)
    with pytest.raises(CorruptionError, match="unknown compression"):
        Table(path, 1).get(b"key")


def test_a_filter_rebuild_keeps_the_blocks(tmp_path):
    table = made(tmp_path / "t.sst")
    for bits, name in ((12000, "filter.sst"), (0, "none.sst")):
        rebuild_table_filter(table, tmp_path / name, millibits=bits, number=2)
        rebuilt = Table(tmp_path / name, 2)
        assert version_of(tmp_path / name) == 2 and rebuilt.properties["compression"] == "zstd"
        assert list(rebuilt.entries()) == list(table.entries())
        assert rebuilt.range_tombstones == [*RANGES] and verify_table(rebuilt, deep=True) == []


def test_without_zstd_a_table_is_refused_and_not_called_damaged(tmp_path):
    path = tmp_path / "t.sst"
    made(path)
    zstd.use("missing")
    with pytest.raises(FormatError, match="zstd") as caught:
        Table(path, 1)
    assert caught.value.file == str(path)
    with pytest.raises(FormatError, match="zstd"):
        lsmkv.SSTWriter(tmp_path / "new.sst", compression="zstd")
    assert not (tmp_path / "new.sst").exists()
    zstd.use("c")
    assert Table(path, 1).get(b"key00000000") is not None


@settings(max_examples=40)
@given(keys, values)
def test_one_entry_through_either_path(tmp_path_factory, key, value):
    path = tmp_path_factory.mktemp("zstd") / "t.sst"
    rows = {key: (value, 1)}
    for writer, reader in (("c", "python"), ("python", "c")):
        zstd.use(writer)
        made(path, rows)
        zstd.use(reader)
        assert list(Table(path, 1).entries()) == listed(rows)
