"""Copies of the source tree, for builds that must leave the normal one alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PARTS = ("lsmkv", "lsmkv_ext", "bench", "tools", "tests", "docs")
FILES = ("setup.py", "pyproject.toml", "README.md")


def copy_tree(target: Path, wanted: Callable[[Path], bool] = lambda _: True) -> None:
    """Copies the files that are `wanted`, built modules included. Copies keep the times of their files, and what else
    is in `target` stays: only what has changed since the last copy is built again.
    """
    sources = [path for part in PARTS for path in (REPOSITORY / part).rglob("*") if path.is_file()]
    for path in [*sources, *(REPOSITORY / file for file in FILES)]:
        if path.suffix != ".pyc" and wanted(path):
            copy = target / path.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    if not (target / "lsmkv_bench").exists():
        (target / "lsmkv_bench").symlink_to("bench")
