"""Runs the tests of another store, from its sdist, on lsmkv. Needs the network, or the sdist in `build/<package>`."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[1] / "build"


def fetch(package: str, version: str) -> Path:
    """Return the sdist, unpacked."""
    folder = BUILD / package
    found = folder / f"{package}-{version}"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        call = f"pip download -q --no-deps --no-binary :all: -d {folder} {package}=={version}"
        subprocess.run([sys.executable, "-m", *call.split()], check=True)
        with tarfile.open(folder / f"{package}-{version}.tar.gz") as sdist:
            sdist.extractall(folder, filter="data")
    return found


class Tally:
    """Leaves out what does not apply, and counts the rest."""

    def __init__(self, not_applicable: Mapping[str, str]) -> None:
        self.not_applicable = not_applicable
        self.names: set[str] = set()
        self.passed = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.names = {item.name for item in items}
        items[:] = [item for item in items if item.name not in self.not_applicable]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed


def run(source: Path, tests: Path, not_applicable: Mapping[str, str], least: float, more: Sequence[str]) -> int:
    """Run `tests` of the sdist `source`, with more arguments for pytest. Return 1 if a test that applies fails, if the
    share of those that pass is below `least`, or if one that does not apply does not exist.
    """
    tally = Tally(not_applicable)
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(source), *more, str(tests)]
    failed = pytest.main(arguments, plugins=[tally])
    for name, reason in not_applicable.items():
        print(f"not applicable: {name}: {reason}")
    print(f"{tally.passed} of {len(tally.names)} tests pass ({tally.passed / len(tally.names):.0%})")
    return int(failed or not_applicable.keys() - tally.names != set() or tally.passed < least * len(tally.names))
