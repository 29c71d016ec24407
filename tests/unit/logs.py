"""Logs for tests: encoded operations, and a log's way into a memtable."""

from typing import Any

from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.memtable.replay import LogReplay
from lsmkv_ext.wal.reader import check_log
from lsmkv_ext.wal.writer import LogWriter

NUMBER = 7


def varint(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def counted(data: bytes) -> bytes:
    return varint(len(data)) + data


def put(key: bytes, value: bytes) -> bytes:
    return b"\0" + counted(key) + counted(value)


def delete(key: bytes) -> bytes:
    return b"\x01" + counted(key)


def delete_range(start: bytes, stop: bytes) -> bytes:
    return b"\x02" + counted(start) + counted(stop)


def make_log(path, n=20, mode="mmap", sync_after=None) -> int:
    """Writes n records of one put, sequence numbers from 101 on; returns the synced offset."""
    writer = LogWriter(path, NUMBER, mode=mode, previous_last_seq=100)
    for i in range(n):
        writer.append(put(b"key%d" % i, b"value%d" % i), 101 + i, 1)
        if sync_after == i:
            writer.sync()
    synced = writer.synced
    writer.close()
    return synced


def replay_log(path, number: int, memtable: Memtable) -> dict[str, Any]:
    """Checks a log and reads all of it into one memtable; returns what `check_log` does."""
    found = check_log(path, number)
    LogReplay(path, number, found["bytes"]).fill({0: memtable}, memtable.seed, 1 << 62)
    return found
