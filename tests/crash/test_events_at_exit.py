"""A process that ends while events are delivered, or with an open `lsmkv.aio.DB`, ends at once and loses nothing."""

import subprocess
import sys

import pytest

import lsmkv

START = """
import asyncio, logging, sys, threading
import lsmkv, lsmkv.aio
path = sys.argv[1]
"""
PROGRAMS = {
    "a listener": """
db = lsmkv.open(path)
db.on("all", lambda event: print(event.kind, flush=True))
db[b"ada"] = b"1815"
db.flush()
""",
    "the log": """
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
db = lsmkv.open(path)
db[b"ada"] = b"1815"
db.flush()
""",
    "a listener that hangs": """
db = lsmkv.open(path)
lsmkv.events.CLOSE_SECONDS = 0.1
entered = threading.Event()
db.on("flush", lambda event: (entered.set(), threading.Event().wait()))
db[b"ada"] = b"1815"
db.flush()
entered.wait()
""",
    "a listener that closes": """
db = lsmkv.open(path)
db.on("flush", lambda event: db.close())
db[b"ada"] = b"1815"
db.flush()
""",
    "an asynchronous database": """
async def main():
    global db
    db = await lsmkv.aio.open(path)
    await db.put(b"ada", b"1815")
    await db.flush()
asyncio.run(main())
""",
    "a loop that ends in the middle of calls": """
async def main():
    db = await lsmkv.aio.open(path, write_buffer_size=65536)
    await db.put(b"ada", b"1815", sync=True)
    for i in range(50):
        asyncio.ensure_future(db.put(b"%d" % i, b"v" * 50_000, sync=True))
    await asyncio.sleep(0)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_process_ends(name, tmp_path):
    program = START + PROGRAMS[name]
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", program, str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    with lsmkv.open(tmp_path / "db") as db:
        assert db[b"ada"] == b"1815"
