"""`doctor`: what lsmkv is built from and what the machine allows it."""

from __future__ import annotations

import os
import platform
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lsmkv_tool.command import declare
from lsmkv_tool.exits import opening
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Column, Output

FEATURES = ("sse4_2", "avx2", "avx512f", "avx512dq", "bmi2", "asimd", "sve")
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph"}
Row = dict[str, Any]


def check(area: str, name: str, value: str, verdict: str = "ok", advice: str | None = None) -> Row:
    return {"area": area, "name": name, "value": value, "verdict": verdict, "advice": advice}


def build() -> Iterator[Row]:
    from importlib.metadata import PackageNotFoundError, version

    for package in ("lsmkv", "lz4", "xxhash", "click", "rich"):
        try:
            yield check("build", package, version(package))
        except PackageNotFoundError:
            yield check("build", package, "not installed", "warn", "install it with pip")
    yield check("build", "python", f"{platform.python_implementation()} {platform.python_version()}")
    yield check("build", "compiler of python", platform.python_compiler())
    from lsmkv_ext.filter import bloom as filters
    from lsmkv_ext.port import codecs

    yield check("native", "filter probes", filters.simd())
    for name, how in codecs.describe().items():
        if not name.endswith("_version"):
            found = how == "c"
            advice = None if found else "the package hides its C function: background work takes the GIL"
            yield check("native", name, how, "ok" if found else "warn", advice)


def features() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return [f for f in value.split() if f in FEATURES]
    return []


def machine() -> Iterator[Row]:
    uname = platform.uname()
    yield check("machine", "system", f"{uname.system} {uname.release} {uname.machine}")
    yield check(
        "machine",
        "cores",
        str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
    )
    yield check("machine", "CPU features", " ".join(features()) or "none known")
    little = sys.byteorder == "little"
    yield check(
        "machine",
        "byte order",
        sys.byteorder,
        "ok" if little else "fail",
        None if little else "the file format is little-endian and read in place",
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield check("machine", "memory", units.size(memory))
    huge = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    if huge:
        chosen = huge.partition("[")[2].partition("]")[0]
        yield check(
            "machine",
            "huge pages",
            chosen,
            "ok" if chosen != "never" else "warn",
            None if chosen != "never" else "madvise makes large filters and caches faster",
        )


def limits() -> Iterator[Row]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft != resource.RLIM_INFINITY and soft < 1024
    yield check(
        "limits",
        "open files",
        f"{_limit(soft)} (at most {_limit(hard)})",
        "warn" if low else "ok",
        "ulimit -n 4096 lets more tables stay open" if low else None,
    )
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield check(
        "limits",
        "file size",
        _limit(size),
        "ok" if size == resource.RLIM_INFINITY else "warn",
        None if size == resource.RLIM_INFINITY else "a log or a table above it cannot be written",
    )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    yield check("limits", "address space", _limit(space))
    maps = _read("/proc/sys/vm/max_map_count")
    if maps:
        yield check("limits", "mappings", maps)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def mount_of(path: Path) -> tuple[str, str]:
    """(file system type, mount point) of the longest mount that holds `path`."""
    best = ("unknown", "?")
    length = -1
    for line in _read("/proc/self/mounts").splitlines():
        parts = line.split()
        if len(parts) < 3:
            continue
        point = parts[1].encode().decode("unicode_escape")
        inside = point == "/" or str(path) == point or str(path).startswith(point + "/")
        if inside and len(point) > length:
            best, length = (parts[2], point), len(point)
    return best


def file_system(path: Path) -> Iterator[Row]:
    kind, point = mount_of(path.resolve())
    remote = kind in NETWORK
    yield check(
        "file system",
        "type",
        f"{kind} at {point}",
        "warn" if remote else "ok",
        "locks and fsync on a network file system depend on the server" if remote else None,
    )
    room = os.statvfs(path)
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    tight = free < 1 << 30
    yield check(
        "file system",
        "free",
        f"{units.size(free)} of {units.size(total)}",
        "warn" if tight else "ok",
        "compaction needs room for its output before it drops its input" if tight else None,
    )
    if not os.access(path, os.W_OK):
        yield check("file system", "writable", "no", "warn", "only read-only commands work here")
        return
    yield check("file system", "writable", "yes")
    yield from _try_out(path)


def _try_out(path: Path) -> Iterator[Row]:
    """The calls the log and the tables rely on, tried on a file without a name: it leaves nothing behind."""
    import mmap
    import time

    with tempfile.TemporaryFile(dir=path) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, 1 << 16)
            with mmap.mmap(file.fileno(), 1 << 16) as shared:
                shared[:5] = b"lsmkv"
            yield check("file system", "mapped log", "works")
        except OSError as error:
            yield check(
                "file system",
                "mapped log",
                error.strerror or str(error),
                "warn",
                "open with wal='write'; a put then costs a system call",
            )
        times = []
        for i in range(8):
            file.seek(0)
            file.write(b"%d" % i)
            file.flush()
            start = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter_ns() - start)
        median = sorted(times)[len(times) // 2]
        yield check(
            "file system",
            "fdatasync",
            units.duration(median),
            "ok" if median > 10_000 else "warn",
            None if median > 10_000 else "too quick for a disk: data may not survive a power cut",
        )


COLUMNS = [
    Column("area", "area"),
    Column("what", "name"),
    Column("value", "value"),
    Column("", "verdict"),
    Column("advice", "advice"),
]


@declare(example="lsmkv-tool doctor .")
@click.argument("path", type=click.Path(), default=".")
def doctor(out: Output, path: str) -> None:
    """Show the build, CPU features, native functions found, limits, and the file system of PATH.

    Exits 1 if something keeps lsmkv from working here.
    """
    with opening(path):
        os.stat(path)
    folder = Path(path)
    if not folder.is_dir():
        folder = folder.parent
    rows = [*build(), *machine(), *limits(), *file_system(folder)]
    out.rows(rows, COLUMNS, finding=any(row["verdict"] == "fail" for row in rows))
