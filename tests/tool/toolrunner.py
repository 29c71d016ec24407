"""Run `lsmkv-tool` in this process, or as a program."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from lsmkv_tool.cli import run


@dataclass
class Outcome:
    code: int
    out: str
    err: str
    raw: bytes = b""

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class _Stream(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def bytes(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()


def tool(*args: object, stdin: str | None = None) -> Outcome:
    out, err = _Stream(), _Stream()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO((stdin or "").encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([os.fspath(a) if isinstance(a, os.PathLike) else str(a) for a in args])
    finally:
        sys.stdin = before
    return Outcome(code, out.bytes().decode(), err.bytes().decode(), out.bytes())


def program(*args: object, stdin: bytes = b"", **kwargs: Any) -> Outcome:
    command = [sys.executable, "-m", "lsmkv_tool", *map(str, args)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, **kwargs)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode(), done.stdout)


def rows(*args: object) -> list[dict[str, Any]]:
    """Return the rows of a command that must succeed."""
    outcome = tool(*args, "--jsonl")
    assert outcome.code == 0, outcome.err
    return outcome.lines


def result(*args: object) -> dict[str, Any]:
    """Return the result of a command that must succeed."""
    outcome = tool(*args, "--json")
    assert outcome.code == 0, outcome.err
    return outcome.json["result"]
