"""Every parser of bytes that come from a file, as a function of those bytes.

A target may raise one of the errors named for it; anything else is a finding. `seal` puts right the
checksums of a mutated input, so that the fuzzer gets past the door and into the room. Where a file is mostly zeros,
its examples are mutated in a `compact` form, so that most changes hit something.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xxhash

from lsmkv import options
from lsmkv.version import current, edit, manifest
from lsmkv_ext.batch import decode_operations
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.errors import CorruptionError, FormatError
from lsmkv_ext.filter.bloom import BlockedBloom
from lsmkv_ext.filter.counting import CountingBloom
from lsmkv_ext.filter.format import describe_filter
from lsmkv_ext.filter.fuse import probe_fuse, set_min_keys
from lsmkv_ext.filter.fuse_filter import FuseFilter
from lsmkv_ext.filter.rotating import RotatingBloom
from lsmkv_ext.filter.scalable import ScalableBloom
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.memtable.replay import LogReplay
from lsmkv_ext.port.wall_clock import encode_clock
from lsmkv_ext.table.rebuild import rebuild_table_filter
from lsmkv_ext.table.sst_writer import SSTWriter
from lsmkv_ext.table.table import Table
from lsmkv_ext.values.reader import ValueLog, decode_pointer
from lsmkv_ext.values.writer import ValueWriter
from lsmkv_ext.wal import sync_watermark
from lsmkv_ext.wal.dump import LogDump
from lsmkv_ext.wal.reader import HEAD_SIZE, check_log
from lsmkv_ext.wal.writer import LogWriter

Seal = Callable[[bytearray], None]


@dataclass(frozen=True)
class Target:
    examples: Callable[[Path], list[bytes]]
    run: Callable[[bytes, Path], object]
    seal: Seal | None = None
    compact: Callable[[bytes], bytes] = lambda data: data
    expand: Callable[[bytearray], bytearray] = lambda data: data
    errors: tuple[type[Exception], ...] = (CorruptionError,)


def xxh3(data: bytes | bytearray, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(bytes(data), seed=seed & (1 << 64) - 1)


def u32(data: bytearray, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def u64(data: bytearray, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def put(data: bytearray, at: int, value: int, width: int) -> None:
    if at + width <= len(data):
        data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")


# ---- log ----------------------------------------------------------------------------------------


EXPIRY = (1 << 61).to_bytes(8, "little")
EXPIRED = (5).to_bytes(8, "little")


def log_examples(folder: Path) -> list[bytes]:
    out = []
    of_keyspace = [b"\x10\x03\x03kkk\x05value", b"\x11\x03\x02kk", b"\x12\x03\x01a\x01b"]
    expiring = [b"\x04\x02kk" + EXPIRY + b"\x05value", b"\x14\x03\x03kkk" + EXPIRED + b"\0"]
    for number, (version, count) in enumerate([(1, 0), (1, 3), (2, 12), (2, 2)], 1):
        path = folder / f"example{number}.wal"
        writer = LogWriter(path, number, mode="write", version=version, previous_last_seq=number * 10)
        for n in range(count):
            ops = [b"\0\x03k%02d\x05value" % n, b"\x01\x02kk", b"\x02\x01a\x01b"]
            if version == 2:
                ops[n % 3] = of_keyspace[n % 3]
                ops[(n + 1) % 3] = expiring[n % 2]
            writer.append(b"".join(ops), 1 + 3 * n, 3)
            if n % 2:
                writer.sync()
        writer.close()
        out.append(path.read_bytes().rstrip(b"\0"))
        path.unlink()
    return out


def log_seal(data: bytearray) -> None:
    number = u64(data, 16)
    put(data, 32, xxh3(data[:32], 0x6C6F672D70616765), 8)
    for slot in (512, 1024):
        put(data, slot + 16, xxh3(data[slot : slot + 16], number ^ 0x6C6F672D736C6F74), 8)
    at = HEAD_SIZE
    while at + 32 <= len(data):
        size = u32(data, at + 8)
        if at + 32 + size > len(data):
            return
        put(data, at + 4, xxh3(data[at + 32 : at + 32 + size], number ^ 0x6C6F672D64617461), 4)
        put(data, at, xxh3(data[at + 4 : at + 32], (number << 32) ^ at ^ 0x6C6F672D68656164), 4)
        at += 32 + (size + 7 & ~7)


LOG_PARTS = ((0, 40), (512, 536), (1024, 1048))  # of the head page; the rest of it is zeros


def log_compact(data: bytes) -> bytes:
    return b"".join(data[start:stop] for start, stop in LOG_PARTS) + data[HEAD_SIZE:]


def log_expand(data: bytearray) -> bytearray:
    """A short one stays as it is: a log that ends within its head."""
    if len(data) < sum(stop - start for start, stop in LOG_PARTS):
        return data
    out, at = bytearray(HEAD_SIZE), 0
    for start, stop in LOG_PARTS:
        out[start:stop] = data[at : at + stop - start]
        at += stop - start
    return out + data[at:]


_files: dict[str, int] = {}


def as_file(data: bytes, folder: Path, name: str) -> str:
    """The file is made once and written over: creating millions of files would take most of the time."""
    path = f"{folder}/{name}"
    fd = _files.get(path)
    if fd is None:
        fd = _files[path] = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))
    return path


def log_run(data: bytes, folder: Path) -> None:
    path = as_file(data, folder, "000001.wal")
    number = int.from_bytes(data[16:24], "little")
    try:
        found = check_log(path, number)
    except CorruptionError:
        # What is good of it can still be had.
        found = check_log(path, number, salvage=True)
        raise
    finally:
        for record in LogDump(path):
            for _ in record.get("operations", ()):
                pass
    if found["records"]:
        LogReplay(path, number, found["bytes"]).fill({0: Memtable(7, 4096), 3: Memtable(7, 4096)}, 7, 1 << 20)


def batch_examples(folder: Path) -> list[bytes]:
    """The count comes first."""
    return [
        b"\x02\0\x01k\x03val\x01\x02kk",
        b"\x01\x02\x01a\x01b",
        b"\x02\x10\x03\x01k\x03val\x11\x07\x02kk",
        b"\x02\x04\x01k" + EXPIRY + b"\x03val\x14\x07\x02kk" + EXPIRED + b"\0",
    ]


def batch_run(data: bytes, folder: Path) -> None:
    decode_operations(data[1:], data[0] if data else 0, 1)


# ---- filter -------------------------------------------------------------------------------------


def bloom_examples(folder: Path) -> list[bytes]:
    out = []
    for count, bits in ((1, 10), (40, 6), (200, 20)):
        bloom = BlockedBloom(count, bits_per_key=bits, seed=count)
        bloom.add_many(b"%d" % n for n in range(count))
        out.append(bloom.to_bytes())
    return out


def filter_examples(folder: Path) -> list[bytes]:
    """Also with the prefixes of a table's filter: kind 3, lengths 2, 4 and 8."""
    prefixed = bytearray(bloom_examples(folder)[1])
    put(prefixed, 40, 3, 4)
    put(prefixed, 44, 0x080402, 4)
    bloom_seal(prefixed)
    return [*bloom_examples(folder), bytes(prefixed)]


def bloom_seal(data: bytearray) -> None:
    put(data, 48, xxh3(data[64:], 0x6269747366696C74), 8)
    put(data, 56, xxh3(data[:56], 0x68656164666C7472), 8)


def bloom_run(data: bytes, folder: Path) -> None:
    bloom = BlockedBloom.from_bytes(data)
    bloom.add(b"x")
    if b"x" not in bloom:
        raise AssertionError("a false negative")
    bloom.test_many([b"a", b"b"])
    _ = bloom.fill_ratio, bloom.approximate_count, bloom.expected_fpr, bloom.capacity, repr(bloom)
    if BlockedBloom.from_bytes(bloom.to_bytes()) != bloom:
        raise AssertionError("a filter does not survive to_bytes")


def family_examples(*makes: Callable[[], Any]) -> Callable[[Path], list[bytes]]:
    """Blobs of the filters, with few keys and with none, plain and compressed."""

    def examples(folder: Path) -> list[bytes]:
        out = []
        for make in makes:
            out.append(make().to_bytes(compress=True))
            made = make()
            made.add_many(b"%d" % n for n in range(40))
            out.append(made.to_bytes())
        return out

    return examples


def static_examples(folder: Path) -> list[bytes]:
    filters = [FuseFilter([b"%d" % n for n in range(count)], width) for count, width in ((0, 8), (3, 4), (300, 12))]
    return [*(one.to_bytes() for one in filters), filters[-1].to_bytes(compress=True)]


def static_run(data: bytes, folder: Path) -> None:
    made = FuseFilter.from_bytes(data)
    made.test_many([b"%d" % n for n in range(100)])
    _ = made.fill_ratio, made.bits_per_key, made.expected_fpr, repr(made), made.digest()
    if FuseFilter.from_bytes(made.to_bytes()) != made:
        raise AssertionError("a filter does not survive to_bytes")


def family_seal(data: bytearray) -> None:
    """Puts right the header, and the filters inside as far as their lengths lead to them."""
    if data[5:6] in (b"\4", b"\5"):
        at = 64
        while at + 8 <= len(data) and (size := u64(data, at)) <= len(data) - at - 8:
            at += 8
            inner = data[at : at + size]
            if inner[:4] == b"LKVF":
                bloom_seal(inner)
                data[at : at + size] = inner
            at += size
    bloom_seal(data)


def family_run(cls: Any, **options: Any) -> Callable[[bytes, Path], None]:
    """`options` are of from_bytes. The last key is in every filter, however few keys it remembers."""

    def run(data: bytes, folder: Path) -> None:
        made = cls.from_bytes(data, **options)
        made.add_many([b"x", b"y"])
        made.add(b"z")
        if b"z" not in made:
            raise AssertionError("a false negative")
        _ = made.fill_ratio, made.approximate_count, made.expected_fpr, made.capacity, repr(made), made.digest()
        if cls.from_bytes(made.to_bytes(), **options) != made:
            raise AssertionError("a filter does not survive to_bytes")

    return run


def shared_examples(folder: Path) -> list[bytes]:
    path = folder / "example.filter"
    out = []
    for count in (1, 100):
        with BlockedBloom.open_shared(path, count) as bloom:
            bloom.add_many(b"%d" % n for n in range(count))
        out.append(path.read_bytes())
        path.unlink()
    return out


def shared_seal(data: bytearray) -> None:
    put(data, 56, xxh3(data[:56], 0x68656164666C7472), 8)
    put(data, 88, xxh3(data[4096:], 0x6269747366696C74), 8)
    put(data, 104, xxh3(data[64:104], 0x7374617465666C74), 8)


def shared_run(data: bytes, folder: Path) -> None:
    with BlockedBloom.open_shared(as_file(data, folder, "seen.filter")) as bloom:
        bloom.add(b"x")
        if b"x" not in bloom:
            raise AssertionError("a false negative")


def fuse_examples(folder: Path) -> list[bytes]:
    out = []
    before = set_min_keys(1)
    try:
        for count, width in ((1, 8), (40, 4), (200, 13)):
            with SSTWriter(folder / "plain.sst") as writer:
                for n in range(count):
                    writer.put(b"%03d" % n, b"")
            table = Table(str(folder / "plain.sst"))
            rebuild_table_filter(table, folder / "fuse.sst", millibits=9000, milliwidth=width * 1000)
            out.append(b"".join(Table(str(folder / "fuse.sst")).filter_bytes()))
            for name in ("plain.sst", "fuse.sst"):
                os.unlink(folder / name)
    finally:
        set_min_keys(before)
    return out


def filter_run(data: bytes, folder: Path) -> None:
    problem = describe_filter(data[:64], data[64:])["problem"]
    if problem != "ok":
        raise CorruptionError(problem)


def fuse_run(data: bytes, folder: Path) -> None:
    """A usable filter is probed within its bytes."""
    found = describe_filter(data[:64], data[64:])
    if not found["usable"]:
        raise CorruptionError(found["problem"])
    if found["kind"] == "fuse":
        shift, positions = data[37], data[39] or 3
        geometry = ((found["n_blocks"] >> shift) - positions + 1, shift, data[7], data[38], positions)
        probe_fuse(geometry, data[64:], [0, 1 << 63, 2**64 - 1])


# ---- manifest -----------------------------------------------------------------------------------


def edit_examples(folder: Path) -> list[bytes]:
    from lsmkv.version.version import TableMeta

    numbers = dict.fromkeys((name for name, _ in edit._FILE_NUMBERS if name != "largest_exclusive"), 1)
    file = TableMeta(smallest=b"a", largest=b"zz", largest_exclusive=False, **numbers)
    expiries = {"expiring": 1, "min_expiry": 5, "max_expiry": 1 << 61, "expiring_bytes": 12}
    expiring = TableMeta(smallest=b"b", largest=b"y", largest_exclusive=False, **numbers | {"number": 2}, **expiries)
    edits = [
        edit.VersionEdit(seed=1, next_file=5, last_seq=9, log_number=2, reason="start", time_us=5),
        edit.VersionEdit.of(added=((0, file),), last_seq=300),
        edit.VersionEdit(trees=(edit.TreeEdit(removed=(1,)),), log_number=2**40),
        edit.VersionEdit.of(moved=((1, 3),), shift=1),
        edit.VersionEdit(
            trees=(edit.TreeEdit(keyspace=3, name="users", options={"bits_per_key": 12}),), next_keyspace=4
        ),
        edit.VersionEdit(trees=(edit.TreeEdit(shift=1), edit.TreeEdit(keyspace=3, added=((1, file),))), clock=77),
        edit.VersionEdit.of(keyspace=3, dropped=True),
        edit.VersionEdit.of(added=((1, expiring),), clock=88),
    ]
    return [*(one.encode() for one in edits), with_extension(edits[-1], 0x41)]


def with_extension(changed: edit.VersionEdit, tag: int) -> bytes:
    """The edit, with another extension behind those of its first file."""
    out = bytearray()
    edit._put_field(out, edit.TAG_ADD, edit._encode_file(*changed.trees[0].added[0]) + bytes([tag]) + b"\x02xy")
    return bytes(out)


def in_order(changed: edit.VersionEdit) -> edit.VersionEdit:
    """With the keyspaces in the order in which they are encoded. An edit may name them in any order."""
    return replace(changed, trees=tuple(sorted(changed.trees, key=lambda tree: tree.keyspace)))


def edit_run(data: bytes, folder: Path) -> None:
    decoded = edit.decode_edit(data, "MANIFEST-000001", 0, format_version=2)
    again = edit.decode_edit(decoded.encode(), "MANIFEST-000001", 0, format_version=2)
    if in_order(again) != in_order(decoded):
        raise AssertionError("an edit does not survive encode")
    edit.decode_edit(data, "MANIFEST-000001", 0, format_version=1)


def manifest_examples(folder: Path) -> list[bytes]:
    edits = edit_examples(folder)
    return [manifest_of(1, edits[:3]), manifest_of(2, [*edits[:2], *edits[4:8]]), manifest._head(1, 1)]


def manifest_of(format_version: int, edits: list[bytes]) -> bytes:
    """Only its first record is known to be synced."""
    head = manifest._head(1, format_version)
    records = [manifest._record(n, encoded, 1) for n, encoded in enumerate(edits)]
    data = bytearray(head + b"".join(records))
    at, slot = manifest.sync_slots(1).encode(2, len(head + records[0]))
    data[at : at + len(slot)] = slot
    return bytes(data)


def manifest_seal(data: bytearray) -> None:
    number = u64(data, 16)
    put(data, 24, xxh3(data[:24], number), 8)
    for slot in manifest.sync_slots(number).offsets:
        put(data, slot + 16, xxh3(data[slot : slot + 16], number), 8)
    at, ordinal = manifest.HEAD_BYTES, 0
    while at + 24 <= len(data):
        size = u32(data, at)
        if size > len(data) - at - 24:
            return
        put(data, at + 16, xxh3(data[at : at + 16] + data[at + 24 : at + 24 + size], number), 8)
        at, ordinal = at + 24 + size, ordinal + 1


def manifest_run(data: bytes, folder: Path) -> None:
    state = manifest.ManifestState(1)
    for _ in manifest.scan(data, 1, "MANIFEST-000001", state):
        pass
    manifest.head_damage(data, 1)


# ---- CURRENT and OPTIONS ------------------------------------------------------------------------


def current_examples(folder: Path) -> list[bytes]:
    return [current.encode_current(n) for n in (1, 77, 10**9)]


def current_run(data: bytes, folder: Path) -> None:
    number = current.decode_current(data, "CURRENT")
    if current.encode_current(number) != data:
        raise AssertionError("CURRENT is read in two ways")


def current_seal(data: bytearray) -> None:
    name = bytes(data).split(b" ", 1)[0]
    data[:] = name + b" %016x\n" % xxhash.xxh3_64_intdigest(name)


def options_examples(folder: Path) -> list[bytes]:
    return [options.Options().encode(), options.Options(bits_per_key=[10, 5], wal="write", default_ttl=60.0).encode()]


def options_seal(data: bytearray) -> None:
    body = bytes(data).partition(b"\n")[2]
    data[:] = b"lsmkv-options 1 %d %016x\n" % (len(body), xxhash.xxh3_64_intdigest(body)) + body


def options_run(data: bytes, folder: Path) -> None:
    options.Options.decode(data)


# ---- table: footer, properties, index, range tombstones, filter, data blocks ----------------------------

FRAME_SEED = 0x6C736D6B76667261
DATA, INDEX, TOMBSTONES, PROPERTIES, FOOTER = 1, 2, 3, 4, 5
FOOTER_SIZE = 160


def make_table(folder: Path, entries: int, tombstones: int, expiring: int = 0, **settings: Any) -> bytes:
    """A table as a flush writes it. Of the entries, every `expiring`-th has an expiry."""
    path = folder / "example.wal"
    writer = LogWriter(path, 1, mode="write", version=2)
    seq = 1
    for n in range(entries + tombstones):
        key = b"key%03d" % n
        op = b"\0\x06%s\x0avalue %04d" % (key, n) if n % 5 else b"\x01\x06" + key
        if expiring and n % expiring == 1:
            op = b"\x04\x06%s%s\x05value" % (key, EXPIRY if n % 2 else EXPIRED)
        if n >= entries:
            op = b"\x02\x06%s\x07%s~" % (key, key)
        writer.append(op, seq, 1)
        seq += 1
    writer.close()
    memtable = Memtable(7, 4096)
    LogReplay(path, 1, writer.size).fill({0: memtable}, 7, 1 << 20)
    path.unlink()
    done = Job([memtable], directory=folder, numbers=FileNumbers(1), seed=7, **settings).run()
    table = folder / f"{done['outputs'][0].number:06d}.sst"
    data = table.read_bytes()
    table.unlink()
    return data


def make_ingestible(folder: Path) -> bytes:
    """A table whose large values are in a value log beside it."""
    path = folder / "ingest.sst"
    with SSTWriter(path, large_value_threshold=64, compression=None, block_size=256, bits_per_key=0) as writer:
        for n in range(20):
            writer.put(b"key%03d" % n, b"value" * (n % 4 * 5), expire_at=1e10 if n % 3 == 0 else None)
    data = path.read_bytes()
    path.unlink()
    path.with_suffix(".vlog").unlink()
    return data


def table_examples(folder: Path) -> list[bytes]:
    return [
        make_ingestible(folder),
        make_table(folder, 25, 3, block_size=4096, compression=0),
        make_table(folder, 25, 0, block_size=4096, compression=1),
        make_table(folder, 60, 2, block_size=256, compression=0),
        make_table(folder, 0, 2),
        make_table(folder, 25, 2, expiring=3, block_size=4096, compression=0),
        make_table(folder, 40, 0, expiring=2, block_size=256, compression=0, keyspace=(3, b"users")),
        make_table(folder, 30, 0, block_size=4096, compression=0, prefix=(3, 0x0504)),
        make_table(folder, 25, 3, block_size=4096, compression=2),
        make_table(folder, 60, 0, block_size=1024, compression=2),
    ]


def _seal_frame(data: bytearray, kind: int, at: int, size: int) -> None:
    if size >= 9 and at + size <= len(data):
        seed = FRAME_SEED ^ kind << 56 ^ at
        put(data, at + size - 4, xxh3(data[at : at + size - 4], seed), 4)


def table_seal(data: bytearray) -> None:
    """Puts right every frame that the footer names; the data as far as it is a single block."""
    footer = len(data) - FOOTER_SIZE
    if footer < 0:
        return
    _seal_frame(data, DATA, 0, u64(data, footer + 128))
    for kind, field in ((INDEX, 64), (TOMBSTONES, 96), (PROPERTIES, 112)):
        _seal_frame(data, kind, u64(data, footer + field), u64(data, footer + field + 8))
    at, size = u64(data, footer + 80), u64(data, footer + 88)
    if at + size <= len(data):
        put(data, footer + 48, xxh3(data[at : at + size], 0x6269747366696C74), 8)
    put(data, footer + 56, xxh3(data[footer : footer + 56], 0x68656164666C7472), 8)
    put(data, footer + 144, xxh3(data[footer + 64 : footer + 144], FRAME_SEED ^ FOOTER << 56), 8)


OWN_LOG = 9


def run_ingested(table: Table) -> None:
    """In a database the pointers of an ingested table have the number of its value log."""
    try:
        stored = [u64(bytearray(pointer), 0) for _, pointer in table.pointers()]
        ingested = [u64(bytearray(pointer), 0) for _, pointer in Table(table.path, own_log=OWN_LOG).pointers()]
    except CorruptionError:
        return
    if ingested != [number or OWN_LOG for number in stored]:
        raise AssertionError("the pointers of an ingested table have other numbers")


def table_run(data: bytes, folder: Path) -> None:
    table = Table(as_file(data, folder, "000001.sst"))
    run_ingested(table)
    _ = table.properties, table.filter_info, table.range_tombstones, table.separators()
    probes = (b"key000", b"key007", b"key024", b"absent", b"zzz", b"")
    for key in probes:
        table.may_contain(key)
        table.find_block(key)
        try:
            table.find(key)
        except CorruptionError:
            continue
    try:
        forward = [key for key, _, _, _ in table.entries(expiries=True)]
    except CorruptionError:
        forward = None
    backward = [key for key, _, _ in table.entries(reverse=True)]
    if forward is not None and forward != backward[::-1]:
        raise AssertionError("the table reads differently in each direction")
    list(table.entries(start=b"key005", mode="compaction"))
    table.block_layout()


# ---- the sync watermark ------------------------------------------------------------------


def synced_examples(folder: Path) -> list[bytes]:
    path = folder / "example-watermark"
    writer = LogWriter(folder / "example.wal", 5, mode="write")
    writer.attach_watermark(sync_watermark.SyncWatermark(path), None)
    out = []
    for n in range(1, 4):
        writer.append(b"\0\x01k\x01v", n, 1)
        writer.sync()
        page = bytearray(path.read_bytes()[:216])
        for at, slot in encode_clock(1 << (20 * n)) if n > 1 else ():
            page[at : at + len(slot)] = slot
        out.append(bytes(page))
    writer.close()
    os.unlink(writer.path)
    return out


def synced_seal(data: bytearray) -> None:
    for at in (0, 64):
        put(data, at + 24, xxh3(data[at : at + 24], 0x73796E6365646E6F), 8)
    for at in (128, 192):
        put(data, at + 16, xxh3(data[at : at + 16], 0x73796E636C6F636B), 8)


def synced_run(data: bytes, folder: Path) -> None:
    path = as_file(data, folder, sync_watermark.NAME)
    found = sync_watermark.read_watermark(path)
    sync_watermark.damaged_offsets(path)
    if sync_watermark.read_clock(path) >= 1 << 64:
        raise AssertionError("a clock beyond all time")
    if found is None:
        raise CorruptionError("no watermark")


# ---- value logs: a pointer, then the file -----------------------------------------------------

POINTER = 32
VALUE_HEAD = 64


# With their compression. Some chunks of the last one shrink, some do not.
EXAMPLE_VALUES = [
    (b"v" * 300, 1),
    (bytes(range(256)), 0),
    (bytes(70_000), 1),
    (b"", 0),
    (b"text and more text " * 30, 2),
    (b"a" * 1000 + b"text, " * 11_000, 2),
]


def values_examples(folder: Path) -> list[bytes]:
    out = []
    for n, (value, compression) in enumerate(EXAMPLE_VALUES):
        path = folder / f"example{n}.vlog"
        pointer = ValueWriter(path, 1).append(value, compression)
        out.append(pointer + path.read_bytes())
        path.unlink()
    return out


def values_seal(data: bytearray) -> None:
    """Puts right the head, and the header and the chunks of the value that the pointer names."""
    put(data, POINTER + 56, xxh3(data[POINTER : POINTER + 56], 0x766C6F672D686561), 8)
    identity, offset, stored = u64(data, POINTER + 24), u64(data, 8), u64(data, 16)
    raw = u64(data, 24) & (1 << 56) - 1
    at = POINTER + offset
    if at + 24 + stored > len(data) or raw > 1 << 24:
        return
    put(data, at, xxh3(data[at + 4 : at + 24], identity ^ offset ^ 0x766C6F672D76616C), 4)
    chunk, entry = at + 24, at + 24 + stored
    for _ in range(-(-raw // (64 << 10))):
        size = u32(data, entry)
        seed = identity ^ (chunk - POINTER) ^ 0x766C6F672D63686B
        put(data, entry + 4, xxh3(data[chunk : chunk + size], seed), 4)
        chunk, entry = chunk + size, entry + 8


def values_run(data: bytes, folder: Path) -> None:
    pointer = data[:POINTER]
    log = ValueLog(as_file(data[POINTER:], folder, "000001.vlog"), 1)
    value = log.read(pointer)
    log.verify(pointer)
    if len(value) != decode_pointer(pointer)[3]:
        raise AssertionError("a value of another size than its pointer says")


TARGETS: dict[str, Target] = {
    "log": Target(log_examples, log_run, log_seal, log_compact, log_expand, (CorruptionError, FormatError)),
    "synced": Target(synced_examples, synced_run, synced_seal),
    "batch": Target(batch_examples, batch_run),
    "bloom": Target(bloom_examples, bloom_run, bloom_seal),
    "filter": Target(filter_examples, filter_run, bloom_seal),
    "static": Target(static_examples, static_run, bloom_seal),
    "counting": Target(family_examples(lambda: CountingBloom(30)), family_run(CountingBloom), family_seal),
    "scalable": Target(family_examples(lambda: ScalableBloom(15, 0.1)), family_run(ScalableBloom), family_seal),
    "rotating": Target(
        family_examples(lambda: RotatingBloom(20, window=60), lambda: RotatingBloom(20)),
        family_run(RotatingBloom, clock=lambda: 5.0),
        family_seal,
    ),
    "shared": Target(shared_examples, shared_run, shared_seal),
    "fuse": Target(fuse_examples, fuse_run, bloom_seal),
    "table": Target(table_examples, table_run, table_seal, errors=(CorruptionError, FormatError)),
    "edit": Target(edit_examples, edit_run),
    "manifest": Target(manifest_examples, manifest_run, manifest_seal, errors=(CorruptionError, FormatError)),
    "current": Target(current_examples, current_run, current_seal),
    "values": Target(values_examples, values_run, values_seal, errors=(CorruptionError, FormatError)),
    "options": Target(options_examples, options_run, options_seal),
}


def scratch_folder() -> Path:
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="lsmkv-fuzz-", dir=shm))
