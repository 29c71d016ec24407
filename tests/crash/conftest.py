from __future__ import annotations

import shutil
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


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A process under iofault that forks the children which open databases."""
    with Lab() as lab:
        yield lab
