"""The progress bar, on a terminal and in a pipe."""

import contextlib
import os
import pty
import subprocess
import sys

SLOW = """
from lsmkv_tool.render import progress
import sys
progress.DELAY = 0.01
with progress.Progress("working", 4) as p:
    p.step(1, "first")
    sys.stdin.readline()
"""


def test_a_progress_bar_appears_on_a_terminal_and_goes_away():
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", COLUMNS="100")
        os.execv(sys.executable, [sys.executable, "-c", SLOW])
    seen = b""
    while b"first" not in seen:
        seen += os.read(fd, 65536)
    os.write(fd, b"go on\n")
    with contextlib.suppress(OSError):  # the process has closed its end
        while part := os.read(fd, 65536):
            seen += part
    assert os.waitpid(pid, 0)[1] == 0
    os.close(fd)
    assert b"working" in seen and b"25 %" in seen and b"1/4" in seen
    shown = seen.rindex(b"first")
    assert b"\x1b[2K" in seen[shown:] and seen.index(b"\x1b[?25l") < seen.rindex(b"\x1b[?25h"), "the bar stays"


def test_no_progress_bar_in_a_pipe():
    done = subprocess.run([sys.executable, "-c", SLOW], input=b"", capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
