"""`doctor`: check the build, the machine and its limits."""

from __future__ import annotations

import mmap
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from lsmkv_tool.command import declare
from lsmkv_tool.exits import open_errors
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Column, prose
from lsmkv_tool.render.output import Output

CPU_FEATURES = ("sse4_2", "avx2", "avx512f", "avx512dq", "bmi2", "asimd", "sve")
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph"}
MIN_OPEN_FILES = 1024
MIN_FREE_BYTES = 1 << 30
MIN_SYNC_NS = 10_000
COLUMNS = [
    Column("area", "area"),
    Column("what", "name"),
    prose("value", "value"),
    Column("state", "verdict"),
    prose("advice", "advice", hide_empty=True),
]
Check = dict[str, Any]


def check(area: str, name: str, value: str, fine: bool = True, advice: str | None = None, bad: str = "warn") -> Check:
    """Return one row. The verdict is "ok" without advice if `fine`, otherwise `bad`."""
    verdict, advice = ("ok", None) if fine else (bad, advice)
    return {"area": area, "name": name, "value": value, "verdict": verdict, "advice": advice}


def check_build() -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    for package in ("lsmkv", "lz4", "xxhash", "click", "rich"):
        try:
            yield check("build", package, version(package))
        except PackageNotFoundError:
            yield check("build", package, "not installed", False, "install it with pip")
    yield check("build", "python", f"{platform.python_implementation()} {platform.python_version()}")
    yield check("build", "python compiler", platform.python_compiler())
    from lsmkv_ext.filter import bloom as filters
    from lsmkv_ext.port import codecs

    yield check("build", "filter probes", filters.simd())
    yield check_zstd()
    for name, source in codecs.describe().items():
        if not name.endswith("_version"):
            advice = "the package does not export its C function: background work holds the GIL"
            yield check("codecs", name, source, source == "c", advice)


def check_zstd() -> Check:
    from lsmkv_ext.port import zstd

    advice = 'tables with compression="zstd" need it: install backports.zstd'
    if zstd.describe() == "python":
        advice = "the package does not export its C functions: background work holds the GIL"
    return check("codecs", "zstd", zstd.describe(), zstd.describe() == "c", advice)


def cpu_features() -> list[str]:
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return [f for f in value.split() if f in CPU_FEATURES]
    return []


def check_machine() -> Iterator[Check]:
    uname = platform.uname()
    yield check("machine", "system", f"{uname.system} {uname.release} {uname.machine}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield check("machine", "cores", str(cores))
    yield check("machine", "CPU features", " ".join(cpu_features()) or "none known")
    little = sys.byteorder == "little"
    yield check("machine", "byte order", sys.byteorder, little, "the file formats are little-endian", bad="fail")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield check("machine", "memory", units.size(memory))
    huge = read_text("/sys/kernel/mm/transparent_hugepage/enabled")
    if huge:
        chosen = huge.partition("[")[2].partition("]")[0]
        yield check("machine", "huge pages", chosen, chosen != "never", "madvise speeds up large filters and caches")


def check_limits() -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES
    value = f"{limit_text(soft)} (at most {limit_text(hard)})"
    yield check("limits", "open files", value, enough, "ulimit -n 4096 allows more open tables")
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    unlimited = size == resource.RLIM_INFINITY
    yield check("limits", "file size", limit_text(size), unlimited, "writes to larger logs and tables will fail")
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    yield check("limits", "address space", limit_text(space))
    maps = read_text("/proc/sys/vm/max_map_count")
    if maps:
        yield check("limits", "mappings", maps)


def limit_text(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def read_text(path: str) -> str:
    """Return the contents of a system file, or "" if this system does not have it."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def mount_of(path: Path) -> tuple[str, str]:
    """Return the file system type and mount point of `path`."""
    best = ("unknown", "?")
    length = -1
    for line in read_text("/proc/self/mounts").splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        point = parts[1].encode().decode("unicode_escape")
        inside = point == "/" or str(path) == point or str(path).startswith(point + "/")
        if inside and len(point) > length:
            best, length = (parts[2], point), len(point)
    return best


def check_file_system(path: Path) -> Iterator[Check]:
    area = "file system"
    kind, point = mount_of(path.resolve())
    local = kind not in NETWORK_FILE_SYSTEMS
    yield check(area, "type", f"{kind} at {point}", local, "locks and fsync depend on the file server")
    room = os.statvfs(path)
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    advice = "compaction needs space for its output before it drops its input"
    yield check(area, "free", f"{units.size(free)} of {units.size(total)}", free >= MIN_FREE_BYTES, advice)
    if not os.access(path, os.W_OK):
        yield check(area, "writable", "no", False, "only read-only commands work here")
        return
    yield check(area, "writable", "yes")
    with tempfile.TemporaryFile(dir=path) as file:
        try:
            map_file(file)
            yield check(area, "mapped log", "works")
        except OSError as error:
            advice = "open databases with wal='write'; a put then costs a system call"
            yield check(area, "mapped log", error.strerror or str(error), False, advice)
        sync_ns = median_sync_ns(file)
    advice = "too fast for a disk: data may not survive a power failure"
    yield check(area, "fdatasync", units.duration(sync_ns), sync_ns > MIN_SYNC_NS, advice)


def map_file(file: BinaryIO) -> None:
    os.posix_fallocate(file.fileno(), 0, 1 << 16)
    with mmap.mmap(file.fileno(), 1 << 16) as shared:
        shared[:5] = b"lsmkv"


def median_sync_ns(file: BinaryIO) -> int:
    times = []
    for i in range(8):
        file.seek(0)
        file.write(b"%d" % i)
        file.flush()
        start = time.perf_counter_ns()
        os.fdatasync(file.fileno())
        times.append(time.perf_counter_ns() - start)
    return sorted(times)[len(times) // 2]


@declare("doctor", example="lsmkv-tool doctor .", table=True)
@click.argument("path", type=click.Path(), default=".")
def doctor(out: Output, path: str) -> None:
    """Check the build, the CPU, the codecs, the limits, and the file system of PATH.

    Exits 1 if lsmkv cannot work here.
    """
    with open_errors(path):
        os.stat(path)
    directory = Path(path) if Path(path).is_dir() else Path(path).parent
    rows = [*check_build(), *check_machine(), *check_limits(), *check_file_system(directory)]
    out.rows(rows, COLUMNS, finding=any(row["verdict"] == "fail" for row in rows))
