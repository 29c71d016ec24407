"""For all tests: where their files go, and what hypothesis may take for granted."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import settings

MEMORY = Path("/dev/shm")
ROOM = 2 << 30

# How long an example takes says something about the machine and nothing about the code.
settings.register_profile("lsmkv", deadline=None)
settings.load_profile("lsmkv")


def roomy(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize >= ROOM


# Files of tests live in memory where there is enough: thousands of fsyncs on a disk prove nothing more. Before
# anything asks for a temporary folder, and in the environment so that children agree.
if "TMPDIR" not in os.environ and roomy(MEMORY):
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # pytest itself may have asked already
