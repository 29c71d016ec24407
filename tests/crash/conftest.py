from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import Lab


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="lsmkv-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def small_disk(folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of the `DISK_SIZE` of the module."""
    if os.geteuid() != 0:
        pytest.skip("a full small file system needs root (mount)")
    root = folder / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.module.DISK_SIZE}", "tmpfs", root], check=True)
    yield root
    subprocess.run(["umount", root], check=True)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A process under iofault that forks the children which open databases."""
    with Lab() as lab:
        yield lab
