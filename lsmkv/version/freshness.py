"""Whether a database has changed since a reader read it: a few system calls tell.

Every change shows in the time of the directory (a new, renamed or removed file), in the size of the manifest (an edit),
or behind the last record of a log (a write). The time of a directory is coarse, so it tells nothing about the
second in which it was taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

SETTLED_NS = 1_000_000_000
PEEK = 32  # bytes of the header of a log record


@dataclass(frozen=True)
class Seen:
    """What a reader found. `logs` are the paths of the live logs, with the ends of their records."""

    directory: str
    changed: tuple[int, int]  # inode and time of the directory
    settled: bool
    manifest: str = ""
    manifest_size: tuple[int, int] = (0, 0)  # inode and size
    logs: tuple[tuple[str, int], ...] = ()

    @classmethod
    def before_reading(cls, directory: str) -> Seen:
        now = time.time_ns()
        status = os.stat(directory)
        return cls(directory, (status.st_ino, status.st_mtime_ns), now - status.st_mtime_ns > SETTLED_NS)

    def with_files(self, manifest: str, fd: int, size: int, logs: Mapping[str, int]) -> Seen:
        """The same with the manifest, open as `fd` and read up to `size`, and the end of each live log."""
        found = os.fstat(fd).st_ino, size
        return replace(self, manifest=manifest, manifest_size=found, logs=tuple(logs.items()))

    def is_current(self) -> bool:
        """False if the database has changed or may have."""
        if not self.settled:
            return False
        with suppress(OSError):
            directory, manifest = os.stat(self.directory), os.stat(self.manifest)
            return (
                (directory.st_ino, directory.st_mtime_ns) == self.changed
                and (manifest.st_ino, manifest.st_size) == self.manifest_size
                and not any(_has_new_records(log, end) for log, end in self.logs)
            )
        return False


def _has_new_records(log: str, end: int) -> bool:
    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        return any(os.pread(fd, PEEK, end))
    finally:
        os.close(fd)
