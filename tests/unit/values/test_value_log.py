"""Value logs: what was appended is read back, and no damage is read as a value."""

from __future__ import annotations

import random
import resource
import struct
from pathlib import Path

import pytest
import xxhash

from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.errors import CorruptionError, FormatError, IOError
from lsmkv_ext.values.reader import ValueLog, decode_pointer, value_end
from lsmkv_ext.values.rewriter import ValueRewriter
from lsmkv_ext.values.writer import HEAD_SIZE, ValueWriter

CHUNK = 64 << 10
SIZES = [0, 1, 7, 8, 100, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 20 * CHUNK + 5]


def half_compressible(n: int, seed: int = 0) -> bytes:
    rng = random.Random(seed)
    return b"".join(rng.randbytes(50) + bytes(50) for _ in range(n // 100 + 1))[:n]


@pytest.mark.parametrize("compression", [0, 1, 2])
@pytest.mark.parametrize("fds", [None, FdCache(4)])
def test_what_was_appended_is_read(tmp_path: Path, compression: int, fds: FdCache | None) -> None:
    writer = ValueWriter(tmp_path / "000007.vlog", 7, fds)
    values = [half_compressible(n, n) for n in SIZES] + [random.Random(1).randbytes(n) for n in SIZES]
    pointers = [writer.append(value, compression) for value in values]
    assert [writer.log.read(pointer) for pointer in pointers] == values
    again = ValueLog(tmp_path / "000007.vlog", 7, fds, identity=writer.log.identity)
    assert [again.read(pointer) for pointer in pointers] == values
    assert again.size == writer.size == (tmp_path / "000007.vlog").stat().st_size
    for pointer in pointers:
        again.verify(pointer)


def test_only_a_value_that_saves_a_sixteenth_is_compressed(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "000001.vlog", 1)
    rng = random.Random(0)
    little = rng.randbytes(960) + bytes(40)
    much = rng.randbytes(800) + bytes(200)
    assert decode_pointer(writer.append(little, 1))[2:] == (1000, 1000, 0)
    number, _, stored, raw, compression = decode_pointer(writer.append(much, 1))
    assert (number, raw, compression) == (1, 1000, 1)
    assert stored < 1000 - 1000 // 16


def test_a_chunk_that_does_not_shrink_is_stored_raw(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "000001.vlog", 1)
    value = random.Random(0).randbytes(CHUNK) + bytes(CHUNK)
    pointer = writer.append(value, 1)
    assert CHUNK < decode_pointer(pointer)[2] < CHUNK + 1000
    assert writer.log.read(pointer) == value


def test_the_layout_is_the_one_of_the_docs(tmp_path: Path) -> None:
    path = tmp_path / "000009.vlog"
    writer = ValueWriter(path, 9)
    pointer = writer.append(b"x" * 10)
    data = path.read_bytes()
    assert data[:8] == b"lsmkvVLG"
    assert struct.unpack_from("<IIQQ", data, 8) == (2, 0, 9, writer.log.identity)
    assert struct.unpack("<QQQQ", pointer) == (9, HEAD_SIZE, 10, 10)
    assert struct.unpack_from("<BBBBQQ", data, HEAD_SIZE + 4) == (0, 0, 0, 0, 10, 10)
    assert data[HEAD_SIZE + 24 : HEAD_SIZE + 34] == b"x" * 10
    assert struct.unpack_from("<I", data, HEAD_SIZE + 34) == (10,)
    assert value_end(pointer) == HEAD_SIZE + 42
    assert len(data) == HEAD_SIZE + 48


def test_a_sealed_value_log_ends_with_its_last_value(tmp_path: Path) -> None:
    path = tmp_path / "000001.vlog"
    writer = ValueWriter(path, 1)
    pointers = [writer.append(b"x" * 4096) for _ in range(100)]
    ahead = path.stat().st_size - writer.size
    assert 0 < ahead <= 256 << 10
    assert path.read_bytes()[-ahead:] == bytes(ahead)
    again = ValueLog(path, 1)
    writer.seal()
    assert path.stat().st_size == writer.size == writer.synced
    assert [log.read(p) for log in (again, writer.log) for p in pointers] == [b"x" * 4096] * 200


def test_nothing_is_written_ahead_of_synced_values(tmp_path: Path) -> None:
    path = tmp_path / "000001.vlog"
    writer = ValueWriter(path, 1)
    for _ in range(50):
        writer.append(b"x" * 4096)
        writer.sync()
        assert path.stat().st_size == writer.size


def test_a_value_may_take_the_last_room(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "000001.vlog", 1)
    values = [random.Random(i).randbytes(10_000) for i in range(20)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEAD_SIZE + 20 * 10_040, hard))
    try:
        pointers = [writer.append(value) for value in values]
        with pytest.raises(IOError, match="value log: write"):
            writer.append(values[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [writer.log.read(pointer) for pointer in pointers] == values
    writer.seal()
    assert (tmp_path / "000001.vlog").stat().st_size == writer.size


def test_every_flipped_byte_of_a_value_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "000001.vlog"
    writer = ValueWriter(path, 1)
    values = [half_compressible(300), random.Random(2).randbytes(200)]
    pointers = [writer.append(value, 1) for value in values]
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        damaged = 0
        try:
            log = ValueLog(path, 1)
        except (CorruptionError, FormatError):
            assert at < HEAD_SIZE
            continue
        for pointer, value in zip(pointers, values, strict=True):
            try:
                assert log.read(pointer) == value
                log.verify(pointer)
            except CorruptionError as error:
                damaged += 1
                assert error.file == str(path)
        padding = any(value_end(p) <= at < (value_end(p) + 7) // 8 * 8 for p in pointers)
        assert damaged == (0 if padding else 1)


@pytest.mark.parametrize("compression", [0, 1, 2])
def test_a_flipped_byte_of_a_long_value_is_noticed(tmp_path: Path, compression: int) -> None:
    path = tmp_path / "000001.vlog"
    writer = ValueWriter(path, 1)
    value = half_compressible(20 * CHUNK)
    pointer = writer.append(value, compression)
    stored = decode_pointer(pointer)[2]
    data = path.read_bytes()
    for at in (
        HEAD_SIZE + 5,
        HEAD_SIZE + 30,
        HEAD_SIZE + stored // 2,
        HEAD_SIZE + 24 + stored + 1,
        value_end(pointer) - 1,
    ):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptionError):
            writer.log.read(pointer)
    path.write_bytes(data)
    assert writer.log.read(pointer) == value


def test_a_value_at_another_place_or_of_another_file_fails(tmp_path: Path) -> None:
    one, other = ValueWriter(tmp_path / "000001.vlog", 1), ValueWriter(tmp_path / "000002.vlog", 1)
    pointer = one.append(b"a" * 100)
    data = (tmp_path / "000001.vlog").read_bytes()
    head = (tmp_path / "000002.vlog").read_bytes()
    (tmp_path / "000002.vlog").write_bytes(head + data[HEAD_SIZE:])
    with pytest.raises(CorruptionError):
        ValueLog(other.path, 1).read(pointer)
    moved = bytearray(pointer)
    struct.pack_into("<Q", moved, 8, len(data))
    (tmp_path / "000001.vlog").write_bytes(data + data[HEAD_SIZE:])
    with pytest.raises(CorruptionError):
        ValueLog(tmp_path / "000001.vlog", 1).read(bytes(moved))


def test_a_pointer_beyond_the_file_allocates_nothing(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "000001.vlog", 1)
    writer.append(b"a" * 100)
    hostile = struct.pack("<QQQQ", 1, HEAD_SIZE, 1 << 30, 1 << 30)
    with pytest.raises(CorruptionError, match="beyond the end"):
        writer.log.read(hostile)


@pytest.mark.parametrize(
    "fields",
    [(1, 8, 1, 1), (1, 65, 1, 1), (1, 64, 2, 1), (1, 64, 1, 2), (1, 64, 1, 1 | 7 << 56), (1, 64, 1 << 31, 1 << 31)],
)
def test_malformed_pointers_are_refused(tmp_path: Path, fields: tuple[int, int, int, int]) -> None:
    writer = ValueWriter(tmp_path / "000001.vlog", 1)
    writer.append(b"a" * 100)
    with pytest.raises(CorruptionError, match="malformed"):
        writer.log.read(struct.pack("<QQQQ", *fields))


def test_a_file_of_another_identity_is_refused(tmp_path: Path) -> None:
    ValueWriter(tmp_path / "000001.vlog", 1)
    with pytest.raises(CorruptionError, match="not the one"):
        ValueLog(tmp_path / "000001.vlog", 1, identity=5)
    with pytest.raises(CorruptionError, match="another number"):
        ValueLog(tmp_path / "000001.vlog", 2)


def test_a_newer_version_is_no_corruption(tmp_path: Path) -> None:
    path = tmp_path / "000001.vlog"
    ValueWriter(path, 1)
    head = bytearray(path.read_bytes())
    head[8] = 3
    head[56:64] = xxhash.xxh3_64_intdigest(bytes(head[:56]), seed=0x766C6F672D686561).to_bytes(8, "little")
    path.write_bytes(head)
    with pytest.raises(FormatError):
        ValueLog(path, 1)


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "000001.vlog").write_bytes(b"theirs")
    with pytest.raises(IOError):
        ValueWriter(tmp_path / "000001.vlog", 1)
    assert (tmp_path / "000001.vlog").read_bytes() == b"theirs"


@pytest.mark.parametrize("compression", [0, 1, 2])
def test_a_copy_in_another_log_is_the_same_value(tmp_path: Path, compression: int) -> None:
    source, target = ValueWriter(tmp_path / "000001.vlog", 1), ValueWriter(tmp_path / "000002.vlog", 2)
    values = [half_compressible(n, n) for n in SIZES]
    target.append(b"before")
    copies = [target.copy(source.log, source.append(value, compression)) for value in values]
    assert [target.log.read(pointer) for pointer in copies] == values
    assert {decode_pointer(pointer)[0] for pointer in copies} == {2}


def test_a_damaged_value_is_not_copied(tmp_path: Path) -> None:
    source, target = ValueWriter(tmp_path / "000001.vlog", 1), ValueWriter(tmp_path / "000002.vlog", 2)
    pointer = source.append(bytes(20 * CHUNK))
    with (tmp_path / "000001.vlog").open("r+b") as file:
        file.seek(18 * CHUNK)
        file.write(b"!")
    before = target.size
    with pytest.raises(CorruptionError):
        target.copy(source.log, pointer)
    assert target.size == before
    assert target.log.read(target.append(b"next")) == b"next"


def test_writing_again_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "000001.vlog"
    writer = ValueWriter(path, 1)
    pointers = [writer.append(half_compressible(n, n), n % 2) for n in SIZES]
    data = path.read_bytes()
    again = ValueRewriter(writer.log)
    for pointer in pointers:
        again.write(pointer)
    again.sync()
    assert path.read_bytes() == data
    at = decode_pointer(pointers[4])[1] + 30
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    with pytest.raises(CorruptionError):
        again.write(pointers[4])


def test_the_last_reference_reports_that_it_is_gone(tmp_path: Path) -> None:
    removable: list[int] = []
    log = ValueWriter(tmp_path / "000005.vlog", 5).log
    log.report_release(removable)
    held = [log]
    del log
    assert removable == []
    held.clear()
    assert removable == [5]
