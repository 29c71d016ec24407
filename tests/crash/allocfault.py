"""Builds the allocfault library and speaks to it from a process that has it preloaded."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from .iofault import build, python_path

SOURCE = Path(__file__).with_name("allocfault.c")
OURS = "lsmkv_ext"


def preload_environment(**more: str) -> dict[str, str]:
    """The environment of a child process that runs under allocfault."""
    # First, or a sanitizer's allocator would hide it; AddressSanitizer wants to be told.
    preload = " ".join(filter(None, [str(build(SOURCE)), os.environ.get("LD_PRELOAD", "")]))
    asan = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS", ""), "verify_asan_link_order=0"]))
    return {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": asan, "PYTHONPATH": python_path(), **more}


class Control:
    """The exported functions, for code that itself runs under the preloaded library."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(None)
        if not hasattr(self._lib, "allocfault_arm"):
            raise RuntimeError("this process does not run under allocfault (LD_PRELOAD)")
        self._lib.allocfault_calls.restype = ctypes.c_long
        self._lib.allocfault_hits.restype = ctypes.c_long
        self._lib.allocfault_place.restype = ctypes.c_char_p

    def arm(self, nth: int, sticky: bool = False, caller: str = OURS) -> None:
        """Fails the nth allocation (from 1 on; 0 only counts) of shared objects whose path contains `caller`."""
        self._lib.allocfault_arm(ctypes.c_long(nth), int(sticky), caller.encode())

    def disarm(self) -> None:
        self._lib.allocfault_disarm()

    def calls(self) -> int:
        return int(self._lib.allocfault_calls())

    def hits(self) -> int:
        return int(self._lib.allocfault_hits())

    def place(self) -> str:
        """Of the first hit."""
        return self._lib.allocfault_place().decode()
