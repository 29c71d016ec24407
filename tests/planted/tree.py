"""Copies of the built source tree, to plant a mistake in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treecopy import REPOSITORY, copy_tree

from .catalogue import Mistake

FOLDER = REPOSITORY / "build" / "planted"

# Whatever is wrong with the copy, an instrument must not count it as a mistake that it noticed.
CHECK = """
import importlib, pkgutil, sys, lsmkv, lsmkv_ext
for package in (lsmkv, lsmkv_ext):
    assert package.__file__.startswith(sys.argv[1]), package.__file__
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.startswith("lsmkv.integrations."):  # what they need may not be installed
            importlib.import_module(module.name)
"""


def environment(tree: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LSMKV_"))}
    return {**env, "PYTHONPATH": str(tree)}


@contextmanager
def copied(name: str) -> Iterator[Path]:
    """A copy of the tree with its built modules: only what is changed in it is built again."""
    # Without a colon, which ends a path in PYTHONPATH.
    tree = FOLDER / re.sub(r"[ /:]+", "-", name)
    shutil.rmtree(tree, ignore_errors=True)
    copy_tree(tree)
    try:
        yield tree
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def _only(file: str) -> dict[str, str]:
    """Settings that build a single module. A changed .pxd needs all of them."""
    name, ending = file.rsplit(".", 1)
    return {"LSMKV_ONLY": name.replace("/", ".")} if ending == "pyx" else {}


def plant(mistake: Mistake, tree: Path) -> None:
    """Plants the mistake and builds it. Raises CalledProcessError if the result cannot be imported."""
    mistake.plant(tree)
    run = {"cwd": tree, "env": environment(tree), "check": True, "capture_output": True}
    if mistake.compiled:
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j2"]
        # Not optimized: compiling takes longer than what the optimizer saves.
        subprocess.run(build, **{**run, "env": {**run["env"], "LSMKV_OPTIMIZE": "0", **_only(mistake.file)}})
    subprocess.run([sys.executable, "-c", CHECK, str(tree)], **run)
