"""Real power cuts: an ext4 file system on a loop device that is shut down under its writers.

EXT4_IOC_SHUTDOWN with NOLOGFLUSH stops the file system at once: neither dirty pages nor the open journal
transaction reach the device. Mounting again replays the journal, as after a power cut.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

MODES = ("data=ordered", "data=writeback", "data=journal")
_SHUTDOWN = 2 << 30 | 4 << 16 | ord("X") << 8 | 125  # _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2


def missing() -> str | None:
    """Why this machine cannot do it, or None."""
    if os.geteuid() != 0:
        return "ext4 power cuts need root (loop mounts and the shutdown ioctl)"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"ext4 power cuts need {tool}"
    if not Path("/dev/loop-control").exists():
        return "ext4 power cuts need loop devices (/dev/loop-control)"
    return None


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


def cut_power(root: str | os.PathLike[str]) -> None:
    """Nothing written from here on, or not yet written, reaches the device."""
    fd = os.open(root, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    finally:
        os.close(fd)


class Device:
    """A file system in a file. Mounted between `mount` and `unmount`."""

    def __init__(self, folder: Path, megabytes: int = 96) -> None:
        self._image, self.root = folder / "image", folder / "mnt"
        self.root.mkdir()
        with open(self._image, "wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,nodiscard", self._image)
        self.mounted = False

    def mount(self, mode: str) -> None:
        _run("mount", "-o", f"loop,{mode}", self._image, self.root)
        self.mounted = True

    def unmount(self) -> None:
        if self.mounted:
            _run("umount", self.root)
            self.mounted = False
