"""Builds the allocfault library, loads it into this process and speaks to it."""

from __future__ import annotations

import ctypes
from pathlib import Path

from .iofault import build

SOURCE = Path(__file__).with_name("allocfault.c")
OURS = "lsmkv_ext"


class Control:
    def __init__(self) -> None:
        self._lib = ctypes.CDLL(str(build(SOURCE)))
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
