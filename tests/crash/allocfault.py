"""Builds the two libraries that fail allocations, loads them into this process and speaks to them."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Protocol

from .iofault import build

SOURCE = Path(__file__).with_name("allocfault.c")
PYTHON_SOURCE = Path(__file__).with_name("pyallocfault.c")
OURS = "lsmkv_ext"
# Not forever: CPython 3.11 unwinds a `with` block in a loop that ends only when it can allocate a number.
BURST = 1000


# CPython 3.12.1 and 3.13.0 crash when a generator cannot be allocated.
PROBE = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("pyallocfault", sys.argv[1])
module = importlib.util.module_from_spec(spec)
place = os.open("/dev/null", os.O_WRONLY)
def largest():
    return max((n for n in (1, 2) if n), default=0)
kept = [largest() for _ in range(300)]
for nth in range(1, 12):
    for _ in range(20):
        kept.append(lambda: kept)
        module.arm(nth, 1, place)
        try:
            kept.append(largest())
        except MemoryError:
            pass
        module.disarm()
"""


class Control(Protocol):
    """Fails the nth allocation, from 1 on; 0 only counts."""

    def arm(self, nth: int, sticky: bool = False) -> None: ...

    def disarm(self) -> None: ...

    def calls(self) -> int: ...

    def hits(self) -> int: ...

    def place(self) -> str:
        """Of the first hit."""


class DataPlane:
    """Allocations by shared objects whose path contains `caller`."""

    def __init__(self, caller: str = OURS) -> None:
        self._caller = caller.encode()
        self._lib = ctypes.CDLL(str(build(SOURCE)))
        self._lib.allocfault_calls.restype = ctypes.c_long
        self._lib.allocfault_hits.restype = ctypes.c_long
        self._lib.allocfault_place.restype = ctypes.c_char_p

    def arm(self, nth: int, sticky: bool = False) -> None:
        self._lib.allocfault_arm(ctypes.c_long(nth), int(sticky), self._caller)

    def disarm(self) -> None:
        self._lib.allocfault_disarm()

    def calls(self) -> int:
        return int(self._lib.allocfault_calls())

    def hits(self) -> int:
        return int(self._lib.allocfault_hits())

    def place(self) -> str:
        return self._lib.allocfault_place().decode()


def build_module() -> Path:
    return build(PYTHON_SOURCE, f"-I{sysconfig.get_path('include')}")


@cache
def interpreter_copes() -> bool:
    """Whether Python itself survives an allocation of its own that fails."""
    return subprocess.run([sys.executable, "-c", PROBE, build_module()], check=False).returncode == 0


def load_module() -> ModuleType:
    name = "pyallocfault"
    if name not in sys.modules:
        path = build_module()
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
    return sys.modules[name]


class PythonObjects:
    """Allocations of Python objects by any thread of the process."""

    def __init__(self) -> None:
        self._module = load_module()
        self._trace = os.memfd_create("place")
        # Called while nothing can be allocated: no method of this class, which would make a frame.
        self.disarm = self._module.disarm
        self.calls = self._module.calls
        self.hits = self._module.hits

    def arm(self, nth: int, sticky: bool = False) -> None:
        self._module.arm(nth, BURST if sticky else 1, self._trace)

    def place(self) -> str:
        return os.pread(self._trace, 4096, 0).decode()


CONTROLS = {"data plane": DataPlane, "Python objects": PythonObjects}
