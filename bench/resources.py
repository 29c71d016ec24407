"""What a worker process has used so far: memory, disk, bytes written, processor time. None off Linux."""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path


def _status() -> dict[str, int]:
    """Memory lines of /proc/self/status in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if line.rstrip().endswith("kB"))
    return {name: int(text.split()[0]) * 1024 for name, text in pairs}


def rss() -> int | None:
    return _status().get("VmRSS")


def rss_anon() -> int | None:
    """Memory that is not backed by a file: what the kernel cannot just drop."""
    return _status().get("RssAnon")


def rss_peak() -> int | None:
    return _status().get("VmHWM")


def reset_peak() -> None:
    """Restarts the peak so that each workload reports its own; where not permitted, peaks accumulate."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


WARM_BYTES = 512 << 20


def warm_memory(size: int = WARM_BYTES) -> None:
    """Touches memory and gives it back. A virtual machine gets its pages from the host at their first touch, at
    several times the cost of a page it had before: which engine meets them would be chance.
    """
    with mmap.mmap(-1, size) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1


def bytes_written() -> int | None:
    """Bytes this process made the kernel owe to storage, mapped pages included.

    Pages of a file that is removed before they were written out count too: on a longer run they would be.
    """
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    table = dict(line.split(": ") for line in lines)
    return int(table["write_bytes"])


def disk_size(path: str | os.PathLike[str]) -> int:
    """Allocated bytes under `path`: sparse and preallocated files count as the disk sees them."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # a compaction removed it meanwhile
    return total


@dataclass
class Usage:
    """A point in time; subtract two for what happened between."""

    wall: float
    cpu: float
    written: int | None

    @classmethod
    def now(cls) -> Usage:
        return cls(time.perf_counter(), time.process_time(), bytes_written())

    def since(self, earlier: Usage) -> Usage:
        known = self.written is not None and earlier.written is not None
        written = self.written - earlier.written if known else None  # type: ignore[operator]
        return Usage(self.wall - earlier.wall, self.cpu - earlier.cpu, written)


def settle(limit: float = 60.0, quiet: float = 0.2) -> float:
    """Waits until the process' background threads rest: under 5 % of a core for `quiet` seconds.

    Works for any engine, as it looks only at processor time and at bytes written. Returns the seconds waited.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < limit:
        before = Usage.now()
        time.sleep(quiet)
        used = Usage.now().since(before)
        if used.cpu < 0.05 * quiet and not used.written:
            break
    return time.perf_counter() - start
