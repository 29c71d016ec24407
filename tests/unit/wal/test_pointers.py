"""The values that the records of a log point to: a record counts only if its value is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from logs import NUMBER, counted, put

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.values.reader import ValueLog
from lsmkv_ext.values.writer import ValueWriter
from lsmkv_ext.wal.pointers import check_values, value_logs_of
from lsmkv_ext.wal.reader import check_log
from lsmkv_ext.wal.writer import LogWriter

VALUES = 9


def put_pointer(key: bytes, pointer: bytes, identity: int) -> bytes:
    return b"\x08" + counted(key) + pointer + identity.to_bytes(8, "little")


def write_log(path: Path, operations: list[bytes]) -> int:
    """A record for each operation; returns the end of the last."""
    writer = LogWriter(path, NUMBER, mode="write", version=2)
    for seq, operation in enumerate(operations, 1):
        writer.append(operation, seq, 1)
    writer.close()
    found = check_log(path, NUMBER)
    assert found["records"] == len(operations)
    return found["bytes"]


@pytest.fixture
def values(tmp_path: Path) -> ValueWriter:
    return ValueWriter(tmp_path / "000009.vlog", VALUES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "000007.wal"


def cases(path: Path, values: ValueWriter, problem: str) -> tuple[int, list[ValueLog]]:
    """A log whose second of three records has the problem; returns its end and the value logs that exist."""
    identity = values.log.identity
    first, second = (values.append(bytes([n]) * 5000) for n in (1, 2))
    other = identity ^ 1 if problem == "not the one" else identity
    end = write_log(path, [put_pointer(b"a", first, identity), put_pointer(b"b", second, other), put(b"c", b"small")])
    if problem == "ends before":
        copy = path.parent / "copy.vlog"
        copy.write_bytes(Path(values.path).read_bytes()[:-8])
        return end, [ValueLog(copy, VALUES)]
    return end, [] if problem == "missing" else [values.log]


@pytest.mark.parametrize(("problem", "good"), [("missing", 0), ("not the one", 1), ("ends before", 1)])
def test_a_record_without_its_value_log_ends_the_log(path: Path, values: ValueWriter, problem: str, good: int) -> None:
    end, logs = cases(path, values, problem)
    found = check_values(path, NUMBER, end, 0, logs, {})
    assert (found["records"], found["last_seq"]) == (good, good)
    assert problem in found["torn_reason"]
    # The value is not looked at below the known-synced offset, but its place is.
    with pytest.raises(CorruptionError, match=problem):
        check_values(path, NUMBER, end, end, logs, {})
    assert check_values(path, NUMBER, end, end, logs, {}, salvage=True) == found


def test_records_with_their_values_count(path: Path, values: ValueWriter) -> None:
    end, logs = cases(path, values, "")
    assert value_logs_of(path, NUMBER, end) == {VALUES: values.log.identity}
    for known_synced in (0, end):
        found = check_values(path, NUMBER, end, known_synced, logs, {})
        assert (found["records"], found["entries"], found["bytes"]) == (3, 3, end)
        assert "torn_reason" not in found
