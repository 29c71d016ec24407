"""Resources that a worker process uses: memory, disk, bytes written, CPU time. None where /proc is missing."""

from __future__ import annotations

import mmap
import os
import resource
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
    """Anonymous memory, which the kernel cannot drop."""
    return _status().get("RssAnon")


def rss_peak() -> int | None:
    return _status().get("VmHWM")


def reset_peak() -> None:
    """Restart the peak for the next workload. Without permission, peaks accumulate."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


MOST_WARM_BYTES = 512 << 20


def warm_memory(size: int) -> None:
    """Touch memory, up to 512 MiB, and free it. The first touch of a page is expensive in a virtual machine, and chance
    would decide which engine pays for it.
    """
    size = min(max(size, mmap.PAGESIZE), MOST_WARM_BYTES)
    with mmap.mmap(-1, size) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1


def bytes_written() -> int | None:
    """Bytes that this process dirtied, mapped pages included.

    Pages of a file that was deleted before writeback count too.
    """
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    table = dict(line.split(": ") for line in lines)
    return int(table["write_bytes"])


def disk_size(path: str | os.PathLike[str]) -> int:
    """Allocated bytes under `path`."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # a compaction deleted it
    return total


@dataclass
class Usage:
    """Resources used so far; `since` gives the difference."""

    wall: float
    cpu: float
    written: int | None
    system: float  # the kernel's part of `cpu`
    faults: int  # pages touched for the first time
    user: float  # of the calling thread, without the kernel's part

    @classmethod
    def now(cls) -> Usage:
        process = resource.getrusage(resource.RUSAGE_SELF)
        thread = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
        times = time.perf_counter(), time.process_time()
        return cls(*times, bytes_written(), process.ru_stime, process.ru_minflt, thread.ru_utime)

    def since(self, earlier: Usage) -> Usage:
        known = self.written is not None and earlier.written is not None
        written = self.written - earlier.written if known else None  # type: ignore[operator]
        return Usage(
            self.wall - earlier.wall,
            self.cpu - earlier.cpu,
            written,
            self.system - earlier.system,
            self.faults - earlier.faults,
            self.user - earlier.user,
        )


def wait_until_idle(limit: float = 60.0, quiet: float = 0.2) -> float:
    """Wait until background work is done: the process uses under 5 % of a core and writes nothing for
    `quiet` seconds. Returns the seconds waited.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < limit:
        before = Usage.now()
        time.sleep(quiet)
        used = Usage.now().since(before)
        if used.cpu < 0.05 * quiet and not used.written:
            break
    return time.perf_counter() - start
