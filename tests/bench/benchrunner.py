"""Runs the real command at a small size, with whatever engines are installed."""

from __future__ import annotations

import os
import subprocess
import sys

from lsmkv_bench.engines import NAMES, Missing, version_of


def installed_engines() -> list[str]:
    found = []
    for name in NAMES:
        try:
            version_of(name)
        except Missing:
            continue
        found.append(name)
    return [name for name in found if name != "rbloom"]


def run_cli(
    *words: str, check: bool = True, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
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
