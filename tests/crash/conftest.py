from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import Lab
from .sizes import FIGURES, SOAK


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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist sends its figures to the process that prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = FIGURES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    FIGURES.extend(getattr(node, "workeroutput", {}).get("figures", ()))


def pytest_terminal_summary(terminalreporter) -> None:
    if FIGURES and (SOAK or os.environ.get("LSMKV_FIGURES") == "1"):
        terminalreporter.section("figures")
        width = max(len(what) for what, _ in FIGURES)
        for what, value in sorted(FIGURES):
            terminalreporter.write_line(f"{what:<{width}}  {value}")
