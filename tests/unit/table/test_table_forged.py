"""Damage behind right checksums: a forged table may give wrong answers, but no crash and no hang."""

import random
import struct

import pytest
import xxhash
from tables import numbered, seal, section_seed, write_table

from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.table.table import Table

FOOTER = 160
KINDS = {"data": 1, "index": 2, "tombstones": 3, "props": 4}


def seal_footer(raw: bytearray) -> None:
    at = len(raw) - FOOTER
    digest = xxhash.xxh3_64_intdigest(bytes(raw[at + 64 : at + 144]), section_seed(5, 0))
    raw[at + 144 : at + 152] = struct.pack("<Q", digest)


def places(raw: bytes) -> dict[str, tuple[int, int]]:
    """Section -> offset and size with its trailer."""
    f = len(raw) - FOOTER
    index, index_size, _, _, tombstones, tombstones_size, props, props_size = struct.unpack_from("<8Q", raw, f + 64)
    return {"index": (index, index_size), "tombstones": (tombstones, tombstones_size), "props": (props, props_size)}


def mutate(rng: random.Random, data: bytearray, start: int, end: int) -> None:
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(start, end)
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def use(path) -> None:
    """Everything a reader can do with a table."""
    table = Table(path, 1, BlockCache(3000))
    list(table.range_tombstones)
    assert table.properties
    for i in range(0, 60, 7):
        table.get(b"key%08d" % i)
        table.may_contain(b"key%08d" % i)
        table.find_block(b"key%08d" % i)
    list(table.entries())
    list(table.entries(reverse=True, mode="compaction"))
    list(table.entries(b"key00000010", b"key00000020"))
    table.block_layout()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("forged") / "t.sst"
    tombstones = ((b"key00000010", b"key00000020", 5000), (b"zz", b"zzz", 6000))
    write_table(path, numbered(60), tombstones, block_size=300, compression=None, seed=3)
    use(path)
    blocks = [(b["offset"], b["size"]) for b in Table(path).block_layout()]
    return path.read_bytes(), blocks


@pytest.mark.parametrize("section", ["data", "index", "tombstones", "props"])
@pytest.mark.parametrize("what", ["payload", "trailer"])
def test_forged_sections(tmp_path, original, section, what):
    raw, blocks = original
    rng = random.Random(f"{section} {what}")
    path = tmp_path / "t.sst"
    refused = 0
    for _ in range(250):
        forged = bytearray(raw)
        at, size = rng.choice(blocks) if section == "data" else places(raw)[section]
        frame = forged[at : at + size]
        payload, raw_size, compression = frame[:-9], size - 9, 0
        if what == "payload":
            mutate(rng, payload, 0, len(payload))
        else:
            compression = rng.choice((0, 1, 1, 2))
            sizes = (0, 1, raw_size + 1, 255 * raw_size, 1 << 30, (1 << 32) - 1, rng.randrange(5000))
            raw_size = rng.choice(sizes)
        forged[at : at + size] = seal(bytes(payload), raw_size, compression, KINDS[section], at)
        path.write_bytes(forged)
        try:
            use(path)
        except CorruptionError as error:
            refused += 1
            assert error.file == str(path)
    assert refused > (100 if what == "trailer" else 10)


def test_forged_footers(tmp_path, original):
    raw, _ = original
    rng = random.Random(11)
    path = tmp_path / "t.sst"
    refused = 0
    for _ in range(400):
        forged = bytearray(raw)
        field = len(raw) - FOOTER + 64 + 8 * rng.randrange(9)
        old = struct.unpack_from("<Q", forged, field)[0]
        values = (0, 1, old + 1, old - 1, old + 64, len(raw), 1 << 40, (1 << 64) - 1, rng.randrange(len(raw)))
        struct.pack_into("<Q", forged, field, rng.choice(values) % (1 << 64))
        seal_footer(forged)
        path.write_bytes(forged)
        try:
            use(path)
        except CorruptionError:
            refused += 1
    assert refused > 200
