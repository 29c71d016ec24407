"""Runs the real command at a small size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lsmkv_bench.engines import NAMES, NotInstalled, version_of


def _installed(name: str) -> bool:
    try:
        version_of(name)
    except NotInstalled:
        return False
    return True


INSTALLED = [name for name in NAMES if name != "before" and _installed(name)]
ENGINES = [name for name in INSTALLED if name != "rbloom"]  # those that store records
DATABASES = [name for name in ENGINES if name not in ("dict", "diskcache")]


def run_cli(*words: str, check: bool = True, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "lsmkv_bench.cli", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=240,
    )
    if check:
        assert done.returncode == 0, done.stderr + done.stdout
    return done


def inject(folder: Path, code: str, **env: str) -> dict[str, str]:
    """The environment in which every process runs `code` when it starts."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(folder), **env}
