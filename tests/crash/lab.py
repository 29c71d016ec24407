"""Runs jobs in children that may die: a small server under iofault forks one child per job.

The server imports lsmkv once and opens nothing, so a child costs a fork instead of an interpreter start.
A job is a function of `jobs.py`, called with keyword arguments that JSON can carry; what it returns comes
back in `Outcome.value`. A child that dies leaves a signal number instead.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

from .iofault import preload_environment

GRACE = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    signal: int  # that ended the child, 0 for none
    code: int  # its exit code
    value: Any  # what the job returned
    error: str  # the traceback, if it raised
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return not self.signal and self.code == 0 and not self.error

    def words(self) -> str:
        if self.timed_out:
            return "hung and was killed by the test"
        return f"signal {self.signal}, exit code {self.code}\n{self.error}"


class Lab:
    def __init__(self) -> None:
        package = __name__.rpartition(".")[0]
        name = f"{package}.lab" if package else "lab"
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", name],
            env=preload_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=GRACE)

    def run(self, job: str, *, kill_after: float | None = None, timeout: float = GRACE, **arguments: Any):
        """Runs one job to its end; with kill_after, sends it SIGKILL so many seconds after its start."""
        assert self._process.stdin and self._process.stdout
        request = {"job": job, "arguments": arguments, "kill_after": kill_after, "timeout": timeout}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the lab itself died with code {self._process.wait()}")
        return Outcome(**json.loads(line))


def _child(request: dict[str, Any], out: int) -> None:
    """Runs the job and reports on `out`; never returns."""
    from . import jobs

    reply: dict[str, Any] = {"value": None, "error": ""}
    code = 0
    try:
        reply["value"] = getattr(jobs, request["job"])(**request["arguments"])
    except BaseException:
        reply["error"] = traceback.format_exc()
        code = 1
    with os.fdopen(out, "w") as pipe:
        json.dump(reply, pipe)
    # Daemon threads and finalizers are a test of their own (test_exit.py); here they would only add noise.
    os._exit(code)


def _collect(fd: int, pid: int, request: dict[str, Any]) -> tuple[bytes, bool]:
    """Reads the reply up to its end, killing the child when its time comes."""
    kill_after = request["kill_after"]
    deadline = time.monotonic() + (request["timeout"] if kill_after is None else kill_after)
    parts = []
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            return b"", kill_after is None
        part = os.read(fd, 1 << 16)
        if not part:
            return b"".join(parts), False
        parts.append(part)


def _serve() -> None:
    import lsmkv  # noqa: F401  (so that children have it at once)

    from . import jobs  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            _child(request, write_end)
        os.close(write_end)
        data, timed_out = _collect(read_end, pid, request)
        os.close(read_end)
        _, status = os.waitpid(pid, 0)
        reply = json.loads(data) if data else {"value": None, "error": ""}
        reply["signal"] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        reply["code"] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
        reply["timed_out"] = timed_out
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve()
