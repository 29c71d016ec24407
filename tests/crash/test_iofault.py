"""The instruments themselves, tried on small programs: what they report must be what happened."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from . import trace
from .iofault import ALL, SYNCS, WRITES, Action, Op, arm_text, build, mask, preload_environment, run_python

WRITER = """
import os, sys
folder = sys.argv[1]
fd = os.open(folder + "/a", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
os.write(fd, b"one")
os.pwrite(fd, b"two", 3)
os.fsync(fd)
os.ftruncate(fd, 4)
os.close(fd)
os.rename(folder + "/a", folder + "/b")
d = os.open(folder, os.O_RDONLY)
os.fsync(d)
os.unlink(folder + "/b")
"""


def records(path):
    return [r for r in trace.read(path) if r.op != Op.MUNMAP]


def test_trace_lists_the_calls_in_order(tmp_path):
    root, out = tmp_path / "root", tmp_path / "trace"
    root.mkdir()
    done = run_python(WRITER, str(root), IOFAULT_ROOT=str(root), IOFAULT_TRACE=str(out))
    assert done.returncode == 0, done.stderr
    got = [(r.op, r.path, r.path2, r.data) for r in records(out)]
    assert got == [
        (Op.OPEN, "a", "", b""),
        (Op.WRITE, "a", "", b"one"),
        (Op.PWRITE, "a", "", b"two"),
        (Op.FSYNC, "a", "", b""),
        (Op.FTRUNCATE, "a", "", b""),
        (Op.RENAME, "a", "b", b""),
        (Op.OPEN, "", "", b""),
        (Op.FSYNC, "", "", b""),
        (Op.UNLINK, "b", "", b""),
    ]
    first = records(out)[0]
    assert first.created and not first.directory
    assert records(out)[7].directory


def test_a_trace_may_end_while_other_threads_write(tmp_path):
    program = """
import os, sys, threading
from crash.iofault import Control
folder, ends = sys.argv[1], threading.Event()
control = Control()
def write():
    fd = os.open(folder + "/a", os.O_CREAT | os.O_WRONLY)
    while not ends.is_set():
        os.write(fd, b"one")
threads = [threading.Thread(target=write) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(5000):
    control.trace(folder + ".trace")
    control.mark(b"mark")
    control.trace(None)
ends.set()
"""
    root = tmp_path / "root"
    root.mkdir()
    done = run_python(program, str(root), IOFAULT_ROOT=str(root))
    assert done.returncode == 0, done.stderr


def test_files_outside_the_root_are_left_alone(tmp_path):
    root, other, out = tmp_path / "root", tmp_path / "other", tmp_path / "trace"
    root.mkdir()
    other.mkdir()
    arm = arm_text(ALL, 1, Action.FAIL, sticky=True)
    done = run_python(WRITER, str(other), IOFAULT_ROOT=str(root), IOFAULT_TRACE=str(out), IOFAULT_ARM=arm)
    assert done.returncode == 0, done.stderr
    assert records(out) == []


@pytest.mark.parametrize(("ops", "nth", "line"), [(WRITES, 2, 6), (SYNCS, 1, 7)])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_fails_the_nth_call_with_the_given_error(tmp_path, ops, nth, line, code):
    arm = arm_text(ops, nth, Action.FAIL, code)
    done = run_python(WRITER, str(tmp_path), IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm)
    assert done.returncode == 1
    assert f"line {line}," in done.stderr
    assert f"[Errno {code}]" in done.stderr


def test_fails_only_files_that_match(tmp_path):
    arm = arm_text(mask(Op.UNLINK), 1, Action.FAIL, errno.EIO, match="zzz")
    assert run_python(WRITER, str(tmp_path), IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm).returncode == 0


def test_once_and_from_then_on(tmp_path):
    code = """
import os, sys
fd = os.open(sys.argv[1] + "/a", os.O_CREAT | os.O_WRONLY)
for i in range(4):
    try:
        print(os.write(fd, b"x"))
    except OSError as error:
        print(error.errno)
"""
    once = arm_text(WRITES, 2, Action.FAIL, errno.ENOSPC)
    always = arm_text(WRITES, 2, Action.FAIL, errno.ENOSPC, sticky=True)
    out = [
        run_python(code, str(tmp_path), IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm).stdout.split()
        for arm in (once, always)
    ]
    assert out == [["1", "28", "1", "1"], ["1", "28", "28", "28"]]


def test_short_write_writes_half(tmp_path):
    code = 'import os,sys; print(os.write(os.open(sys.argv[1] + "/a", os.O_CREAT | os.O_WRONLY), b"x" * 10))'
    arm = arm_text(WRITES, 1, Action.SHORT)
    done = run_python(code, str(tmp_path), IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm)
    assert done.stdout.strip() == "5"
    assert (tmp_path / "a").stat().st_size == 5


def test_reads_of_several_pieces_fail_and_are_short(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 10)
    code = """
import os, sys
fd = os.open(sys.argv[1] + "/a", os.O_RDONLY)
try:
    print(os.preadv(fd, [bytearray(0), bytearray(4), bytearray(6)], 0))
except OSError as error:
    print(error.errno)
"""
    for action, said in ((Action.SHORT, "2"), (Action.FAIL, str(errno.EIO))):
        arm = arm_text(mask(Op.READ), 1, action, errno.EIO)
        done = run_python(code, str(tmp_path), IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm)
        assert done.stdout.strip() == said


@pytest.mark.parametrize(("action", "size"), [(Action.KILL, 3), (Action.KILL_AFTER, 6)])
def test_kills_at_or_after_the_nth_call(tmp_path, action, size):
    arm = arm_text(WRITES, 2, action)
    done = run_python(WRITER, str(tmp_path), IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "a").stat().st_size == size


def test_stores_into_a_mapping_are_recorded_before_the_next_call(tmp_path):
    root, out = tmp_path / "root", tmp_path / "trace"
    root.mkdir()
    code = """
import mmap, os, sys
fd = os.open(sys.argv[1] + "/m", os.O_CREAT | os.O_RDWR)
os.posix_fallocate(fd, 0, 8192)
m = mmap.mmap(fd, 8192)
m[10:13] = b"abc"
os.fdatasync(fd)
m[4096:4099] = b"xyz"
m.close()
"""
    done = run_python(code, str(root), IOFAULT_ROOT=str(root), IOFAULT_TRACE=str(out))
    assert done.returncode == 0, done.stderr
    got = records(out)
    assert [r.op for r in got] == [Op.OPEN, Op.FALLOCATE, Op.MMAP, Op.STORE, Op.FDATASYNC, Op.STORE]
    assert (got[3].offset, got[3].data[8:15]) == (0, b"\0\0abc\0\0")
    assert (got[5].offset, got[5].data[:4]) == (4096, b"xyz\0")


def test_posix_fallocate_reports_the_injected_error(tmp_path):
    code = """
import os, sys
fd = os.open(sys.argv[1] + "/m", os.O_CREAT | os.O_RDWR)
try:
    os.posix_fallocate(fd, 0, 8192)
except OSError as error:
    print(error.errno, os.fstat(fd).st_size)
"""
    arm = arm_text(mask(Op.FALLOCATE), 1, Action.FAIL, errno.ENOSPC)
    done = run_python(code, str(tmp_path), IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm)
    assert done.stdout.split() == ["28", "0"]


def test_a_c_program_is_watched_too(tmp_path):
    source = tmp_path / "prog.c"
    source.write_text(
        "#include <fcntl.h>\n#include <stdio.h>\n#include <errno.h>\n#include <unistd.h>\n"
        "int main(int c, char **v) { (void)c; int fd = open(v[1], O_CREAT | O_WRONLY, 0644);"
        ' if (write(fd, "hello", 5) != 5) { printf("write %d\\n", errno); return 3; } return 0; }\n'
    )
    subprocess.run(["gcc", "-O2", "-o", tmp_path / "prog", source], check=True)
    environment = preload_environment(
        IOFAULT_ROOT=str(tmp_path), IOFAULT_ARM=arm_text(WRITES, 1, Action.FAIL, errno.EDQUOT)
    )
    done = subprocess.run(
        [tmp_path / "prog", tmp_path / "f"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, f"write {errno.EDQUOT}\n")


def test_build_is_reused():
    first = build()
    stamp = os.stat(first).st_mtime_ns
    assert build() == first
    assert os.stat(first).st_mtime_ns == stamp


def test_any_program_runs_under_it_from_the_command_line(folder):
    """A trace of a program that knows nothing of iofault, and its third sync refused."""
    program = "import os, sys\nfd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n" + "os.fsync(fd)\n" * 4
    watched, log = folder / "watched", folder / "trace"
    watched.mkdir()
    tests = Path(__file__).parents[1]
    run = {"cwd": tests, "capture_output": True, "text": True, "check": False}
    arguments = ["--root", str(watched), "--trace", str(log), "--ops", "fsync", "--nth", "3", "--errno", "ENOSPC"]
    command = [sys.executable, "-c", program, str(watched / "file")]
    done = subprocess.run([sys.executable, "-m", "crash.iofault", *arguments, "--", *command], **run)
    assert done.returncode == 1 and "No space left" in done.stderr
    shown = subprocess.run([sys.executable, "-m", "crash.trace", str(log)], **run).stdout.splitlines()
    assert [line.split()[1] for line in shown][:4] == ["open", "fsync", "fsync", "fsync"]
    assert "No space left" in shown[3]
