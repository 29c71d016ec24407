"""What once went wrong, each under the name of what went wrong."""

from __future__ import annotations

import errno
import shutil
import threading
import time

import pytest
import xxhash

import lsmkv
from lsmkv_ext.table.table import Table

from .iofault import SYNCS, Action, Op, mask
from .load import PIECES, TINY


def left_by_a_kill(lab, folder):
    """A database with a table and a log that waits for its replay."""
    fault = {"ops": mask(Op.MMAP) | SYNCS, "nth": 30, "action": int(Action.KILL)}
    call = {"folder": str(folder / "db"), "books": [str(folder / "book")], "options": TINY}
    outcome = lab.run("write_until_killed", seed="regression", fault=fault, **call)
    assert outcome.signal == 9, outcome.words()
    return call


@pytest.mark.parametrize("slack", [None, PIECES])
@pytest.mark.parametrize(("ops", "err"), [(mask(Op.OPEN), errno.EMFILE), (SYNCS, errno.EIO)])
def test_a_failed_open_keeps_the_manifest_and_tables_that_current_names(lab, folder, ops, err, slack):
    """The folder could not be opened, or not be synced, after CURRENT had been renamed: the new manifest and
    the table of the replayed log were removed as orphans."""
    call = left_by_a_kill(lab, folder)
    image = folder / "image"
    (folder / "db").rename(image)
    nth, hits = 0, 1
    while hits:
        nth += 1
        shutil.copytree(image, folder / "db")
        fault = {"ops": ops, "nth": nth, "action": int(Action.FAIL), "err": err}
        said = lab.run("open_with_fault", folder=call["folder"], options=TINY, fault=fault, slack=slack)
        assert said.ok, said.words()
        hits = said.value["hits"]
        after = lab.run("check", **call)
        assert after.ok, f"call {nth}: {after.words()}"
        assert after.value["problems"] == [], f"call {nth}"
        shutil.rmtree(folder / "db")
    assert nth > 3  # at least the manifest, CURRENT and the folder


def test_an_unsynced_log_head_is_no_error_after_a_power_cut(lab, folder):
    """The head page was lost while later pages survived. Now the head is synced before the log has its name,
    so a log that starts with zeros is damage and nothing else."""
    with lsmkv.open(folder / "db", **TINY) as db:
        db.put(b"k", b"v", sync=True)
        shutil.copytree(folder / "db", folder / "image", ignore=shutil.ignore_patterns("*.tmp"))  # the next log
    (log,) = (folder / "image").glob("*.wal")
    data = log.read_bytes()
    log.write_bytes(bytes(4096) + data[4096:])
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.open(folder / "image", **TINY)
    log.write_bytes(data)
    with lsmkv.open(folder / "image", **TINY) as db:
        assert db[b"k"] == b"v"
    assert not list((folder / "image").glob("*.tmp"))


def test_a_close_waits_for_an_iterator_that_is_being_made(lab, folder):
    """Sorting the memtable for it released the GIL uncounted, and close emptied the half-made iterator."""
    for number in range(5):
        call = {"folder": str(folder / str(number)), "delay": number / 100}
        outcome = lab.run("close_during_first_order", **call)
        assert outcome.ok, outcome.words()
        assert outcome.value == []


def test_a_close_waits_for_a_rotation(lab, folder):
    """The rotation was not in flight for close, which took the view from under it."""
    outcome = lab.run("close_during_rotation", folder=str(folder / "db"), options=TINY)
    assert outcome.ok, outcome.words()
    assert outcome.value == []


def test_a_close_is_not_starved_by_writers_that_rotate(folder):
    """Who gave the writer's turn back could take it again before the next in the queue had the GIL."""
    with lsmkv.open(folder / "db", **TINY) as db:
        order = []

        def rotate():
            with db._engine.exclusive():
                order.append("the one who waited")

        with db._engine.exclusive():
            waiter = threading.Thread(target=rotate)
            waiter.start()
            while db._engine.turn_queue < 2:
                time.sleep(0.001)
        db.put(b"k", b"v")
        order.append("the one who had it before")
        waiter.join()
        assert order == ["the one who waited", "the one who had it before"]


def test_a_small_compressed_block_cannot_ask_for_a_gigabyte(folder):
    """The raw size of an LZ4 frame was bounded by its payload alone; now 48 MiB is the limit, and what is
    larger is stored as it is."""
    value = bytes(50 << 20)
    with lsmkv.open(folder / "db", block_cache_size=0, write_buffer_size=256 << 20, large_value_threshold=None) as db:
        db._work.claims.suspended += 1  # an idle database would merge its L0 meanwhile
        db.put(b"large", value)
        db.put(b"small", bytes(1 << 20) * 4)
        db.flush()
        assert db.get(b"large") == value
    (table,) = (folder / "db").glob("*.sst")
    large, small = Table(table).block_layout()
    assert (large["compression"], small["compression"]) == (None, "lz4")
    data = bytearray(table.read_bytes())
    end = small["offset"] + small["size"]
    data[end - 9 : end - 5] = (49 << 20).to_bytes(4, "little")
    seed = 0x6C736D6B76667261 ^ 1 << 56 ^ small["offset"]
    checksum = xxhash.xxh3_64_intdigest(bytes(data[small["offset"] : end - 4]), seed=seed) & 0xFFFFFFFF
    data[end - 4 : end] = checksum.to_bytes(4, "little")
    table.write_bytes(data)
    with pytest.raises(lsmkv.CorruptionError, match="impossible size"):
        Table(table).get(b"small")
