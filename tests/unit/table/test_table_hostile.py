"""How much memory a table may take: opening one allocates no more than its size and 16 MiB, whatever it says; and
what the writer makes always stays below that."""

import struct
import subprocess
import sys

import lz4.block
import pytest
from tables import write_table
from test_table_forged import FOOTER, KINDS, places, seal, seal_footer

from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table

ALLOWANCE = 16 << 20


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def pack(raw: bytes, kind: str, at: int) -> bytes:
    packed = lz4.block.compress(raw, store_size=False)
    return seal(packed, len(raw), 1, KINDS[kind], at)


def rebuild(original: bytes, index: bytes | None = None, tombstones: bytes = b"", props: bytes | None = None) -> bytes:
    """The table with other sections (raw bytes), every checksum right."""
    old = places(original)
    data = original[: old["index"][0]]
    kept = {name: original[at : at + size - 9] for name, (at, size) in old.items() if size}
    out = bytearray(data)
    footer = bytearray(original[-FOOTER:])
    for name, raw, field in (("index", index, 64), ("tombstones", tombstones, 96), ("props", props, 112)):
        at = len(out)
        if raw:
            out += pack(raw, name, at)
        elif name in kept:
            out += seal(kept[name], len(kept[name]), 0, KINDS[name], at)
        struct.pack_into("<QQ", footer, field, at, len(out) - at)
        if name == "index":
            struct.pack_into("<QQ", footer, 80, len(out), 0)
    out += footer
    seal_footer(out)
    return bytes(out)


def properties(original: bytes, **numbers: int) -> bytes:
    """The raw properties with some numbers changed."""
    at, size = places(original)["props"]
    raw = bytearray(original[at : at + size - 9])
    for name, value in numbers.items():
        ident = {"n_range_tombstones": 3}[name]
        place = raw.index(bytes([ident, 8])) + 2
        struct.pack_into("<Q", raw, place, value)
    return bytes(raw)


def long_separators(sizes: list[int], length: int) -> bytes:
    """Long separators that cost the file a few bytes each; the last one shares nothing with the others."""
    out = bytearray()
    for i, size in enumerate(sizes):
        tail = struct.pack(">I", i)
        if i == 0:
            out += varint(0) + varint(length + 4) + b"k" * length + tail
        elif i == len(sizes) - 1:
            out += varint(0) + varint(1) + b"z"
        else:
            out += varint(length) + varint(4) + tail
        out += varint(size) + varint(1)
    return bytes(out)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "t.sst"
    rows = {b"key%05d" % i: (b"v" * 20, 1) for i in range(5000)}
    write_table(path, rows, block_size=16, compression=None, bits_per_key=0)
    return path.read_bytes(), [block["size"] for block in Table(path).block_layout()]


def hostile_index(raw, sizes):
    return rebuild(raw, index=long_separators(sizes, 60_000))


def hostile_ranges(raw, sizes):
    count = 5_000_000
    return rebuild(raw, tombstones=b"\0\x01\x01a" * count, props=properties(raw, n_range_tombstones=count))


def hostile_properties(raw, sizes):
    return rebuild(raw, props=properties(raw) + varint(99) + varint(40 << 20) + bytes(40 << 20))


@pytest.mark.parametrize("forge", [hostile_index, hostile_ranges, hostile_properties])
def test_a_small_table_cannot_ask_for_gigabytes(tmp_path, original, forge):
    """In a process of its own, whose memory is then its own too."""
    path = tmp_path / "t.sst"
    path.write_bytes(forge(*original))
    code = (
        "import resource, sys\n"
        "from lsmkv_ext.errors import CorruptionError\n"
        "from lsmkv_ext.table.table import Table\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10\n"
        "before = peak()\n"
        "try:\n"
        "    Table(sys.argv[1])\n"
        "except CorruptionError as error:\n"
        "    print(peak() - before, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    grown, _, said = done.stdout.partition(" ")
    assert "more memory than its size allows" in said
    assert int(grown) < path.stat().st_size + 64 * 2**20


def test_an_unforged_rebuild_opens(tmp_path, original):
    """Otherwise the hostile tables might be refused for another reason."""
    raw, sizes = original
    path = tmp_path / "t.sst"
    path.write_bytes(rebuild(raw, tombstones=b"\0\x01\x01a", props=properties(raw, n_range_tombstones=1)))
    assert len(Table(path).range_tombstones) == 1
    path.write_bytes(rebuild(raw, index=long_separators(sizes, 60)))
    assert Table(path).separators()[1:] == [*(b"k" * 60 + struct.pack(">I", i) for i in range(1, len(sizes) - 1)), b"z"]


def test_long_keys_over_blocks_that_compress_to_nothing(tmp_path):
    """60 KB for each separator, a few hundred bytes for each block: padding pays for the difference."""
    rows = {b"k" * 60_000 + b"%04d" % i: (b"v", 1) for i in range(600)} | {b"z": (b"last", 1)}
    path = tmp_path / "t.sst"
    write_table(path, rows, block_size=64)
    assert path.stat().st_size > 600 * 60_000 - ALLOWANCE
    table = Table(path)
    assert verify_table(table) == []
    assert [table.get(key) for key in sorted(rows)[::50]] == [rows[key] for key in sorted(rows)[::50]]


def test_more_range_tombstones_than_the_allowance_holds(tmp_path):
    tombstones = tuple((b"%06d" % i, b"%06d" % (i + 1), i + 1) for i in range(350_000))
    path = tmp_path / "t.sst"
    write_table(path, {b"key": (b"value", 1)}, tombstones)
    table = Table(path)
    assert len(table.range_tombstones) == len(tombstones)
    assert verify_table(table) == []


def test_an_ordinary_table_is_not_padded(tmp_path):
    rows = {b"key%07d" % i: (b"v" * 50, 1) for i in range(20_000)}
    path = tmp_path / "t.sst"
    summary = write_table(path, rows)
    assert path.stat().st_size < summary["data_bytes"] + summary["index_bytes"] + summary["filter_bytes"] + 1024
