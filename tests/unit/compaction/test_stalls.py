"""Back pressure: delayed and stopped writers."""

import itertools
import os
import threading
import time

import pytest
from databases import fill, keep_still
from treetext import tree

import lsmkv
from lsmkv.compaction.stalls import LAST_DELAY_NS, pressure
from lsmkv.options import Options
from lsmkv.recovery.open_writer import MERGE_AT_OPEN


def test_back_pressure_is_counted(path):
    with lsmkv.open(
        path, write_buffer_size=4096, max_write_buffers=2, l0_compaction_trigger=1, l0_slowdown_trigger=1
    ) as db:
        fill(db, 2000)
        stalls = db.stats().stalls
        assert stalls.stops > 0
        assert stalls.stop_seconds > 0


def test_an_open_stops_writers_if_l0_is_over_its_trigger(path):
    """The stop was not looked at when the database was opened, and each close ended the compaction under way."""
    lax = {"l0_compaction_trigger": 50, "l0_slowdown_trigger": 50, "l0_stop_trigger": 50}
    with lsmkv.open(path, **lax, large_value_threshold=None) as db:
        keep_still(db)
        for n in range(6):
            db.put(b"%d" % n, os.urandom(MERGE_AT_OPEN))  # the open merges smaller tables
            db.flush()
    with lsmkv.open(path, l0_compaction_trigger=3, l0_slowdown_trigger=4, l0_stop_trigger=5) as db:
        assert db.stats().stalls.stops == 1
        db.put(b"k", b"v")
        assert len(db._versions.default.current.levels[0]) < 5


def test_a_close_ends_the_delay_of_a_large_write(path):
    db = lsmkv.open(path)
    db._engine.set_delay(500_000)  # per KiB: sixteen seconds
    refused = []

    def write():
        try:
            db.put(b"key", bytes(32 << 20))
        except lsmkv.ClosedError as error:
            refused.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    time.sleep(0.05)
    db.close()
    thread.join(5)
    assert refused


@pytest.mark.parametrize(("files", "stopped"), [(0, False), (19, False), (20, False), (35, False), (36, True)])
def test_the_stop_comes_only_at_the_limit(files, stopped):
    version = tree("L0: " + " ".join(f"{n}[a-z]" for n in range(1, files + 1)) if files else "")
    assert pressure(version, Options()).stopped == stopped


def test_writers_are_slowed_smoothly():
    options = Options()
    delays = []
    for files in range(1, 37):
        version = tree("L0: " + " ".join(f"{n}[a-z]" for n in range(1, files + 1)))
        delays.append(pressure(version, options).delay_ns)
    assert delays[:19] == [0] * 19
    slow = delays[19:]
    assert all(0 < a < b for a, b in itertools.pairwise(slow))
    assert all(b / a < 2 for a, b in itertools.pairwise(slow))
    assert slow[-1] == LAST_DELAY_NS


def test_debt_below_l0_slows_too():
    options = Options(write_buffer_size=4096, target_file_size=4096)
    assert pressure(tree("L1: 1[a-z]40000\nL2: 2[a-z]400000"), options).delay_ns == 0
    assert pressure(tree("L1: 1[a-z]900000\nL2: 2[a-z]900000"), options).delay_ns > 0


def test_writers_do_not_wait_for_a_compaction_that_cannot_be(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        db[b"a"] = db[b"z"] = os.urandom(100)
        db.flush()
    victim = min(path.glob("*.sst"))
    data = bytearray(victim.read_bytes())
    data[40] ^= 1
    victim.write_bytes(bytes(data))
    options = {"l0_compaction_trigger": 2, "l0_slowdown_trigger": 3, "l0_stop_trigger": 4}
    with lsmkv.open(path, **options) as db:
        for i in range(10):
            db[b"b%d" % i] = b"v"
            db.flush()
        assert len(db._versions.default.current.levels[0]) > 4
        assert db[b"b9"] == b"v"
        assert db.background.errors >= 1
        assert victim.name in db.background.last_error
