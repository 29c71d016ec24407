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
HANG = 30.0  # seconds after which a process never ends

PRELUDE = """
import os, sys, threading, time, atexit, signal
# The first to register is the last to run: behind the exit hook of lsmkv.
last = []
atexit.register(lambda: [each() for each in last])
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

FINALIZER = """
class A:
    def __del__(self): {}
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
    "opened by atexit": ("atexit.register(lambda: lsmkv.open(sys.argv[1] + '2').close())", 0),
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
    # While the interpreter finalizes no thread runs but the main one.
    "closed by a finalizer": (f"{FINALIZER.format('self.db.close()')}a = A(); a.db = db", 0),
    "closed by a finalizer late": (
        f"{FINALIZER.format('self.db.close()')}sys.modules['os'].kept = A(); sys.modules['os'].kept.db = db",
        0,
    ),
    "closed by a generator": (
        "def rows():\n    with db:\n        yield from db.items()\nrows = rows(); next(rows)",
        0,
    ),
    "uncaught exception in compact_range": ("db.compact_range(progress=lambda done, total: 1 / 0)", 1),
    "uncaught exception in a with block": (
        "with db:\n    db.compact_range(progress=lambda done, total: 1 / 0)",
        1,
    ),
    "interrupted in compact_range": (
        "put(3000)\nthreading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "while True: db.put(b'zz', b''); db.compact_range()",
        -signal.SIGINT,
    ),
    "daemon thread compacting": (
        "kept = []\ndef go():\n    try: db.compact_range()\n    except BaseException as error: kept.append(error)\n"
        "threading.Thread(target=go, daemon=True).start()",
        0,
    ),
    "daemon thread compacting again and again": (FOREVER.format("db.put(b'zz', b''); db.compact_range()"), 0),
    "daemon thread rebuilding filters": (
        FOREVER.format("db.set_options(bits_per_key=16); db.rebuild_filters(); db.set_options(bits_per_key=8)"),
        0,
    ),
    "daemon thread looking": (
        FOREVER.format("db.stats(); db.approximate_len(); db.property('lsmkv.memory')")
        + FINALIZER.format("self.db.close()")
        + "a = A(); a.db = db",
        0,
    ),
    "daemon thread opening": (
        "def go():\n    try:\n        while True: lsmkv.open(sys.argv[1] + '2').close()\n"
        "    except RuntimeError: pass\n"
        "threading.Thread(target=go, daemon=True).start(); time.sleep(0.05)",
        0,
    ),
    "opened by a finalizer": (
        FINALIZER.format("\n        try: lsmkv.open(sys_argv[1]).close()\n        except RuntimeError: pass")
        + "sys_argv = sys.argv; a = A()",
        0,
    ),
    "read by a finalizer": (
        FINALIZER.format("""
        try: self.reader.refresh()
        except lsmkv.ClosedError: pass
        self.reader.get(b'000001'); self.reader.close()""")
        + "a = A(); a.reader = lsmkv.open(sys.argv[1], 'r'); lsmkv.lifecycle.unregister(a.reader)",
        0,
    ),
    "closed behind the exit hook": ("last.append(db.close)", 0),
    "used behind the exit hook": (
        "def go():\n    try: db.flush()\n    except lsmkv.ClosedError: pass\nlast.append(go)",
        0,
    ),
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
    try:
        _, errors = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler says where
        _, errors = process.communicate()
        pytest.fail(f"the process does not end:\n{errors}")
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


# The exit hook knows nothing of it: still open, with its threads, while the interpreter finalizes.
LEFT = """
import gc
class Kept:
    def __init__(self, db):
        self.db = db
        lsmkv.lifecycle.unregister(db)
    def __del__(self):
        {}
kept = Kept(db)
del db, put
"""

# A daemon thread holds something forever. Not a function of this module: it would keep `kept` alive.
HELD = """
held = threading.Event()
code = '''
def hold(db):
    with {}:
        held.set()
        time.sleep(1000)
'''
names = dict(lsmkv=lsmkv, time=time, held=held)
exec(code, names)
threading.Thread(target=names.pop("hold"), args=(kept.db,), daemon=True).start()
held.wait()
"""

LOCKS = [
    "db._versions.lock",
    "db._versions.commit",
    "db._closing",
    "db._scheduler.running._lock",
    "db._engine.exclusive()",
    "lsmkv.lockfile._guard",
]

TRIED = "\n        try: {}\n        except lsmkv.ClosedError: pass"

# What a finalizer may ask of a database whose threads have stopped.
CALLS = [
    "pass",
    "self.db.close()",
    "self.db.put(b'zz', b'')",
    "[self.db.put(b'zz%d' % i, b'x' * 1000) for i in range(1000)]",
    "self.db.flush()",
    "self.db.compact_range()",
    "self.db.compact_range(wait=False)",
    "self.db.rebuild_filters()",
    "self.db.set_options(bits_per_key=16, sync_interval_ms=10)",
    "self.db.stats()",
    "self.db.checkpoint(self.db.path + '2')",
    "list(self.db.items())",
]


def ends(program: str, path: Path, expect: int = 0) -> str:
    """The program ends by itself, and a reopen finds what it acknowledged. Returns what it wrote to stderr."""
    acknowledged, ended, errors, _ = end(program, path)
    assert ended == expect, errors
    with lsmkv.open(path) as db:
        assert sum(1 for _ in db.items(stop=b"z")) == acknowledged
    return errors


@pytest.mark.parametrize("call", CALLS)
def test_finalizers_use_a_database_whose_threads_have_stopped(call, folder):
    assert ends(PRELUDE + LEFT.format(TRIED.format(call)), folder / "db") == ""


@pytest.mark.parametrize("call", ["pass", "self.db.close()", "self.db.flush()"])
def test_without_a_log_finalizers_write_the_tables(call, folder):
    prelude = PRELUDE.replace("lsmkv.open(sys.argv[1],", "lsmkv.open(sys.argv[1], wal=None,")
    # A thread that stops inside a commit keeps the manifest: then the finalizer raises, and nothing more is flushed.
    prelude += "db._work.claims.suspended += 1\ndb._scheduler.wait_idle()\n"
    assert ends(prelude + LEFT.format(TRIED.format(call)), folder / "db") == ""


@pytest.mark.parametrize("lock", LOCKS)
def test_finalizers_wait_for_no_lock_that_a_stopped_thread_holds(lock, folder):
    calls = "".join(TRIED.format(call) for call in reversed(CALLS))
    assert ends(PRELUDE + LEFT.format(calls) + HELD.format(lock), folder / "db") == ""


def test_an_interrupt_in_the_exit_hook_ends_it(folder):
    """What closes the database stops halfway, with its locks."""
    body = """
def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1000)
db._scheduler.stop = interrupted
"""
    assert "KeyboardInterrupt" in ends(PRELUDE + body, folder / "db")


@pytest.mark.parametrize("options", ["", ", wal=None"])
def test_what_is_written_to_a_database_opened_behind_the_exit_hook_is_found(options, folder):
    """Python 3.12 starts no thread any more then, and none is needed."""
    body = f"""
def late():
    global db
    db = lsmkv.open(sys.argv[1] + "2"{options})
    db.put(b"k", b"v")
last.append(late)
"""
    assert ends(PRELUDE + body, folder / "db") == ""
    with lsmkv.open(folder / "db2") as db:
        assert dict(db.items()) == {b"k": b"v"}


def test_a_warning_that_is_an_error_does_not_keep_a_forgotten_database_open(folder):
    program = """
import gc, sys, threading, lsmkv
db = lsmkv.open(sys.argv[1])
db.put(b"k", b"v")
print(1, flush=True)
del db
gc.collect()
assert not [each for each in threading.enumerate() if each.name.startswith("lsmkv")]
with lsmkv.open(sys.argv[1]) as db: assert db[b"k"] == b"v"
"""
    program = "import warnings; warnings.simplefilter('error')\n" + program
    assert "ResourceWarning" in ends(program, folder / "db")
