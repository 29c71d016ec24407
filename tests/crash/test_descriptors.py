"""Descriptors: none is inherited by a program that the process starts, none takes the place of a standard stream."""

from __future__ import annotations

import json
import os

import pytest

from . import trace
from .iofault import Op, run_python
from .load import LOG_MODES

# Every way in which the library opens a file, with descriptors 0 to 2 free for whoever asks next.
EVERYTHING = """
import errno, json, os, sys, time
import lsmkv
from crash.iofault import Action, Control, Op, mask

folder, report, wal = sys.argv[1:]
for fd in (0, 1, 2):
    os.close(fd)
control = Control()
inherited, streams, seen = set(), set(), set()

def look():
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
            flags = int(open(f"/proc/self/fdinfo/{fd}").read().split("flags:")[1].split()[0], 8)
        except OSError:
            continue
        if name.startswith(folder):
            name = os.path.basename(name)
            seen.add(name)
            if not flags & os.O_CLOEXEC:
                inherited.add(name)
            if int(fd) <= 2:
                streams.add(name)

def table(name, key):
    with lsmkv.SSTWriter(f"{folder}/{name}") as writer:
        writer.put(key, b"v")
        look()
    return f"{folder}/{name}"

path = f"{folder}/db"
db = lsmkv.open(path, wal=wal, write_buffer_size=8192, stats_export=True)
for i in range(500):
    db.put(b"%06d" % i, b"x" * 100, sync=i % 100 == 0)
look()
db.flush()
db.compact_range()
assert len(list(db.items())) == 500
db.set_options(bits_per_key=14)
db.rebuild_filters()
db.checkpoint(f"{folder}/linked")
control.arm(mask(Op.LINK), 1, Action.FAIL, errno.EXDEV, True)
db.checkpoint(f"{folder}/copied")
db.ingest([table("a.sst", b"a")])
db.ingest([table("b.sst", b"b")], move=True)
control.disarm()
db.ingest([table("c.sst", b"c")], move=True)
look()
with lsmkv.SSTReader(f"{folder}/a.sst") as reader:
    look()
    assert reader[b"a"] == b"v"
reader = lsmkv.open(path, "r")
db[b"more"] = b""
reader.refresh()
assert b"more" in reader
look()
assert lsmkv.verify(path).ok
time.sleep(0.6)  # until the statistics were written once
reader.close()
db.close()
assert lsmkv.verify(path).ok
lsmkv.repair(path)
lsmkv.open(path).close()
lsmkv.destroy(path)
with lsmkv.open(f"{folder}/copied", "r") as copied:
    assert len(copied) == 500
low = control.low()
control.trace(None)
with open(report, "w") as out:
    json.dump({"inherited": sorted(inherited), "streams": sorted(streams), "seen": sorted(seen), "low": low}, out)
"""


@pytest.fixture(scope="module", params=LOG_MODES)
def run(request, tmp_path_factory):
    """What the program above saw of its own descriptors, and its calls of open."""
    folder = tmp_path_factory.mktemp("descriptors")
    watched, report, calls = folder / "watched", folder / "report", folder / "trace"
    watched.mkdir()
    arguments = (str(watched), str(report), request.param)
    done = run_python(EVERYTHING, *arguments, IOFAULT_ROOT=str(watched), IOFAULT_TRACE=str(calls))
    assert done.returncode == 0 and report.exists()
    opens = [r for r in trace.read(calls) if r.op == Op.OPEN and r.done]
    return json.loads(report.read_text()), opens


def test_every_kind_of_file_is_opened(run):
    """Or the tests below would prove nothing."""
    opened = {os.path.basename(r.path) for r in run[1]}
    assert {"LOCK", "CURRENT", "CURRENT.tmp", "OPTIONS", "OPTIONS.tmp", "STATS.tmp"} <= opened
    assert {"db", "copied.checkpoint"} <= opened  # folders, to sync them
    assert {".sst", ".wal", ".tmp"} <= {os.path.splitext(name)[1] for name in opened}
    assert any(name.startswith("MANIFEST") for name in opened)


def test_every_descriptor_is_closed_on_exec(run):
    seen, opens = run
    assert {r.path for r in opens if not r.length & os.O_CLOEXEC} == set()
    assert "LOCK" in seen["seen"]
    assert seen["inherited"] == []


def test_no_descriptor_is_a_standard_stream(run):
    """Not even for one read or write: `copy_file` and `verify` once used whatever number was free.

    Nor between an open and the move to a higher number, when another thread may print.
    """
    seen, opens = run
    assert {r.path for r in opens if r.result <= 2} == set()
    assert seen["streams"] == []
    assert seen["low"] == 0
