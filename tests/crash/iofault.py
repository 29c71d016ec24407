"""Builds the iofault library and speaks to it from a process that has it preloaded. On its own, in tests/:

python -m crash.iofault --root DIR --trace FILE --ops fsync --nth 3 --action fail --errno ENOSPC -- PROGRAM ...
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("iofault.c")


class Op(IntEnum):
    """Call classes, in the order of `enum op` in iofault.c; also the bits of a mask."""

    OPEN = 0
    READ = 1
    WRITE = 2
    PWRITE = 3
    FSYNC = 4
    FDATASYNC = 5
    RENAME = 6
    UNLINK = 7
    FTRUNCATE = 8
    FALLOCATE = 9
    MMAP = 10
    MSYNC = 11
    MKDIR = 12
    LINK = 13
    RMDIR = 14
    MUNMAP = 15
    CLOSE = 16
    STORE = 17
    MARK = 18


class Action(IntEnum):
    COUNT = 0
    FAIL = 1
    KILL = 2
    SHORT = 3
    KILL_AFTER = 4
    HOLD = 5  # until armed for something else, or disarmed


def mask(*ops: Op) -> int:
    return sum(1 << op for op in ops)


SYNCS = mask(Op.FSYNC, Op.FDATASYNC, Op.MSYNC)
WRITES = mask(Op.WRITE, Op.PWRITE)
CHANGES = WRITES | SYNCS | mask(Op.OPEN, Op.RENAME, Op.UNLINK, Op.FTRUNCATE, Op.FALLOCATE, Op.MMAP, Op.MKDIR, Op.LINK)
ALL = CHANGES | mask(Op.READ)
# Calls that fail on a bad or full disk, each with its error: for tests that draw one.
DISK_FAULTS = [
    (SYNCS, errno.EIO), (WRITES, errno.EIO), (WRITES, errno.ENOSPC), (mask(Op.READ), errno.EIO),
    (CHANGES & ~SYNCS, errno.EIO), (CHANGES & ~SYNCS, errno.ENOSPC), (mask(Op.OPEN), errno.EMFILE),
]  # fmt: skip


def build(source: Path = SOURCE, *more: str) -> Path:
    """Compiles the library once per version of its source and `more` flags; returns its path."""
    key = hashlib.sha256(source.read_bytes() + repr(more).encode()).hexdigest()[:16]
    folder = Path(__file__).parents[2] / "build" / "iofault"
    target = folder / f"{source.stem}-{key}.so"
    if target.exists():
        return target
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise FileNotFoundError(f"{source.stem} needs a C compiler (gcc, or $CC)")
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f"{target.name}.{os.getpid()}"
    flags = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", *more]
    subprocess.run([*compiler, *flags, "-o", str(half), str(source), "-ldl", "-lpthread"], check=True)
    half.rename(target)
    return target


def preload_environment(**more: str) -> dict[str, str]:
    """The environment of a child process that runs under iofault."""
    tests = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")]))
    # A sanitizer that is preloaded already has to stay, and to stay first.
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD", ""), str(build())]))
    return {**os.environ, "LD_PRELOAD": preload, "PYTHONPATH": path, **more}


def run_python(code: str, *arguments: str, timeout: float = 60, **environment: str):
    """Runs a small Python program under iofault to its end."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=preload_environment(**environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def arm_text(ops: int, nth: int, action: Action, err: int = errno.EIO, sticky: bool = False, match: str = "") -> str:
    """The value of IOFAULT_ARM."""
    return f"{ops},{nth},{int(action)},{err},{int(sticky)}" + (f",{match}" if match else "")


class Control:
    """The exported functions, for code that itself runs under the preloaded library."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._lib, "iofault_arm"):
            raise RuntimeError("this process does not run under iofault (LD_PRELOAD)")
        self._lib.iofault_calls.restype = ctypes.c_long
        self._lib.iofault_hits.restype = ctypes.c_long
        self._lib.iofault_low.restype = ctypes.c_long

    def root(self, path: str | os.PathLike[str] | None) -> None:
        if self._lib.iofault_root(os.fsencode(path) if path else None):
            raise FileNotFoundError(path)

    def trace(self, path: str | os.PathLike[str] | None) -> None:
        if self._lib.iofault_trace(os.fsencode(path) if path else None):
            raise OSError(ctypes.get_errno(), "cannot open the trace", path)

    def mark(self, data: bytes) -> None:
        self._lib.iofault_mark(data, ctypes.c_uint32(len(data)))

    def arm(
        self, ops: int, nth: int, action: Action, err: int = errno.EIO, sticky: bool = False, match: str = ""
    ) -> None:
        self._lib.iofault_arm(ctypes.c_uint32(ops), ctypes.c_long(nth), int(action), err, int(sticky), match.encode())

    def disarm(self) -> None:
        self._lib.iofault_arm(ctypes.c_uint32(0), ctypes.c_long(0), 0, 0, 0, b"")

    def calls(self) -> int:
        return int(self._lib.iofault_calls())

    def hits(self) -> int:
        return int(self._lib.iofault_hits())

    def low(self) -> int:
        """Calls so far that went through descriptor 0, 1 or 2 to a watched file."""
        return int(self._lib.iofault_low())


def main() -> None:
    """Runs any program under iofault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="calls on files under this folder are watched")
    parser.add_argument("--trace", help="where to log them; python -m crash.trace FILE shows it")
    parser.add_argument("--ops", default="", help="of " + ",".join(op.name.lower() for op in Op))
    parser.add_argument("--nth", type=int, default=1)
    parser.add_argument("--action", choices=[action.name.lower() for action in Action], default="fail")
    parser.add_argument("--errno", default="EIO")
    parser.add_argument("--sticky", action="store_true", help="from then on, not once")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    environment = {"IOFAULT_ROOT": os.path.abspath(given.root)}
    if given.trace:
        environment["IOFAULT_TRACE"] = os.path.abspath(given.trace)
    if given.ops:
        ops = mask(*(Op[name.upper()] for name in given.ops.split(",")))
        err = getattr(errno, given.errno)
        environment["IOFAULT_ARM"] = arm_text(ops, given.nth, Action[given.action.upper()], err, given.sticky)
    os.execvpe(given.command[0], given.command, preload_environment(**environment))


if __name__ == "__main__":
    main()
