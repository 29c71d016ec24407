"""The interpreter ends while a database is in an awkward state: right exit code, soon, nothing lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import lsmkv

LIMIT = 2.0  # seconds from the last acknowledged write to the end of the process

PRELUDE = """
import os, sys, threading, time, atexit, signal
import lsmkv
# A shell starts what runs in its background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
db = lsmkv.open(sys.argv[1], write_buffer_size=65536, target_file_size=32768)
def put(n):
    for i in range(n):
        db.put(b"%06d" % i, b"v" * 100)
    print(n, flush=True)
put(3000)
"""

# The database closes itself when the interpreter ends; a daemon thread is told so.
FOREVER = """
def go():
    try:
        while True: {}
    except lsmkv.ClosedError: pass
threading.Thread(target=go, daemon=True).start(); time.sleep(0.05)
"""

# name -> (what the program does, its exit code)
STATES: dict[str, tuple[str, int]] = {
    "left open": ("", 0),
    "closed": ("db.close()", 0),
    "sys.exit": ("sys.exit(5)", 5),
    "uncaught exception": ("raise ValueError", 1),
    "os._exit": ("os._exit(3)", 3),
    "iterator half way": ("it = iter(db.items()); next(it)", 0),
    "iterator outlives the database's name": ("it = db.iterator(); next(it); del db", 0),
    "snapshot held": ("s = db.snapshot(); s.get(b'000001')", 0),
    "batch unfinished": ("b = db.write_batch(); b.put(b'zz', b'')", 0),
    "in a reference cycle": ("class A: pass\na = A(); a.a = a; a.db = db; del db", 0),
    "held by a module": ("sys.modules['os'].kept = db; sys.modules['os'].it = db.iterator()", 0),
    "daemon thread writing": (FOREVER.format("db.put(b'zz', b'x' * 50)"), 0),
    "daemon thread iterating": (FOREVER.format("list(db.items())"), 0),
    "daemon thread syncing": (FOREVER.format("db.put(b'zz', b'', sync=True)"), 0),
    "thread that ends later": (
        "def go():\n    time.sleep(0.2); db.put(b'zz', b'late')\nthreading.Thread(target=go).start()",
        0,
    ),
    "compaction running": ("db.compact_range(wait=False)", 0),
    "flush running": ("db.flush(wait=False)", 0),
    "closed by atexit": ("atexit.register(db.close)", 0),
    "used by atexit": ("atexit.register(lambda: db.put(b'zz', b''))", 0),
    "compacted by atexit": ("atexit.register(db.compact_range)", 0),
    "filters rebuilt by atexit": ("db.set_options(bits_per_key=16); atexit.register(db.rebuild_filters)", 0),
    # Python 3.12 and 3.13 start no thread any more then.
    "compaction begun by atexit": (
        "def go():\n    try: db.compact_range(wait=False)\n    except RuntimeError: pass\natexit.register(go)",
        0,
    ),
    "opened by atexit": (
        "def go():\n    try: lsmkv.open(sys.argv[1] + '2').close()\n    except RuntimeError: pass\natexit.register(go)",
        0,
    ),
    "compacted by a thread that ends later": (
        "def go():\n    time.sleep(0.2); db.compact_range()\nthreading.Thread(target=go).start()",
        0,
    ),
    "used by a finalizer": (
        "class A:\n    def __del__(self):\n        try: self.db.get(b'000001')\n"
        "        except lsmkv.Error: pass\na = A(); a.db = db; a.a = a",
        0,
    ),
    "interrupted": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(1)", -signal.SIGINT),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(1)", -signal.SIGTERM),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(1)", -signal.SIGKILL),
    "two databases": ("other = lsmkv.open(sys.argv[1] + '2'); other.put(b'k', b'v')", 0),
    "imports torn down": ("sys.modules.clear()", 0),
}


def end(program: str, path: Path) -> tuple[int, int, str, float]:
    """Runs a program; how many writes it acknowledged, its exit code, its errors, and how long its end took."""
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", program, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stderr
    acknowledged = int(process.stdout.readline())
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    return acknowledged, process.returncode, errors, time.monotonic() - began


@pytest.mark.parametrize("name", STATES)
def test_exit_is_clean_and_loses_nothing(name, folder):
    body, code = STATES[name]
    program = PRELUDE + textwrap.dedent(body) + "\n"
    for attempt in range(3):
        path = folder / str(attempt)
        acknowledged, ended, errors, took = end(program, path)
        assert ended == code, errors
        if code in (0, 3, 5):
            assert errors == ""
        with lsmkv.open(path) as db:
            assert sum(1 for _ in db.items(stop=b"z")) == acknowledged
        if took < LIMIT:
            return
    # A busy machine may be slow once; an exit that waits for something is slow each time.
    pytest.fail(f"the end of the process took {took:.1f} s, three times over {LIMIT}")
