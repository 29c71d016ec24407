"""The disk model behind replayed crash states, tried on traces whose outcome is known."""

from __future__ import annotations

import random

from . import trace
from .iofault import run_python
from .replay import Disk, crashes, keep, state, write_state


def record_program(tmp_path, body):
    root, out = tmp_path / "root", tmp_path / "trace"
    root.mkdir()
    code = "import os, sys\nroot = sys.argv[1] + '/'\n" + body
    done = run_python(code, str(root), IOFAULT_ROOT=str(root), IOFAULT_TRACE=str(out))
    assert done.returncode == 0, done.stderr
    return root, list(trace.read(out))


def final(records) -> Disk:
    disk = Disk()
    for record in records:
        disk.follow(record)
    return disk


def states(disk) -> dict[str, list[dict[str, bytes]]]:
    """The files of every crash state, by kind."""
    out: dict[str, list[dict[str, bytes]]] = {}
    for crash in crashes(disk, random.Random(1), randoms=200):
        files = {name: content.whole() for name, content in crash.files.items()}
        out.setdefault(crash.kind, []).append(files)
    return out


REPLACE = """
fd = os.open(root + "cur", os.O_CREAT | os.O_WRONLY)
os.write(fd, b"old")
os.fsync(fd)
d = os.open(root, os.O_RDONLY)
os.fsync(d)
t = os.open(root + "tmp", os.O_CREAT | os.O_WRONLY)
os.write(t, b"new")
{sync}
os.rename(root + "tmp", root + "cur")
"""


def test_replacing_without_a_sync_can_lose_the_file(tmp_path):
    _, records = record_program(tmp_path, REPLACE.format(sync=""))
    got = states(final(records))
    assert got["keep all"][0] == {"cur": b"new"}
    assert got["drop all"][0] == {"cur": b""}
    assert got["drop all and names"][0] == {"cur": b"old"}
    assert got["zero fill"][0] == {"cur": b"\0\0\0"}


def test_replacing_with_a_sync_gives_old_or_new(tmp_path):
    _, records = record_program(tmp_path, REPLACE.format(sync="os.fsync(t)"))
    seen = {files["cur"] for group in states(final(records)).values() for files in group}
    assert seen == {b"old", b"new"}


def test_a_synced_file_without_a_synced_name_can_be_absent(tmp_path):
    body = 'fd = os.open(root + "f", os.O_CREAT | os.O_WRONLY); os.write(fd, b"x"); os.fsync(fd)'
    _, records = record_program(tmp_path, body)
    got = states(final(records))
    assert got["drop names"][0] == {}
    assert got["drop all"][0] == {"f": b"x"}


def test_pages_arrive_in_any_order(tmp_path):
    body = """
fd = os.open(root + "f", os.O_CREAT | os.O_WRONLY)
os.write(fd, b"a" * 4096)
os.write(fd, b"b" * 4096)
d = os.open(root, os.O_RDONLY)
os.fsync(d)
"""
    _, records = record_program(tmp_path, body)
    seen = {files["f"] for files in states(final(records))["random pages"]}
    zero = bytes(4096)
    assert zero + b"b" * 4096 in seen
    assert b"a" * 4096 + zero in seen


def test_every_end_state_matches_the_real_files(tmp_path):
    body = """
import random
rng = random.Random(5)
for i in range(200):
    name = root + str(rng.randrange(6))
    what = rng.randrange(6)
    if what == 0 and os.path.exists(name):
        os.unlink(name)
    elif what == 1 and os.path.exists(name):
        os.rename(name, root + str(rng.randrange(6)))
    else:
        fd = os.open(name, os.O_CREAT | os.O_RDWR | (os.O_TRUNC if what == 2 else 0))
        os.pwrite(fd, rng.randbytes(rng.randrange(1, 9000)), rng.randrange(9000))
        if what == 3:
            os.ftruncate(fd, rng.randrange(9000))
        if what == 4:
            os.posix_fallocate(fd, 0, rng.randrange(1, 20000))
        if what == 5:
            os.fsync(fd)
        os.close(fd)
"""
    root, records = record_program(tmp_path, body)
    real = {path.name: path.read_bytes() for path in root.iterdir()}
    assert len(records) > 200
    disk = final(records)
    assert states(disk)["keep all"][0] == real
    write_state(tmp_path / "again", state(disk, keep, disk.names))
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == real


def test_a_file_that_was_there_before_the_trace_is_durable(tmp_path):
    disk = Disk()
    (tmp_path / "f").write_bytes(b"before")
    disk.load(tmp_path)
    assert states(disk)["drop all and names"][0] == {"f": b"before"}
