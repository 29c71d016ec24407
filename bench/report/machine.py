"""The machine and the commit that a result comes from."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def _field(path: str, key: str) -> str:
    """The value of the first `key: value` line."""
    lines = _read(path).splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def filesystem(folder: str) -> str:
    """Type of the file system that holds `folder`."""
    real = os.path.realpath(folder)
    best, kind = "", ""
    for line in _read("/proc/mounts").splitlines():
        _, mount, name, *_ = line.split()
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, name
    return kind


def commit() -> str:
    """The commit of the checkout, with a + if it has changes; empty outside a checkout."""
    here = Path(__file__).resolve().parent
    try:
        text = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return text.strip()


def machine(folder: str) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "filesystem": filesystem(folder),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "commit": commit(),
    }
