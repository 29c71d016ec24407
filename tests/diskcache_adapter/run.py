"""Runs diskcache's own tests of `Cache` on `lsmkv.Cache`: `make test-diskcache`. Needs the network, or the sdist in
`build/diskcache`.

Fails if a test that applies fails, or if fewer than 80 % apply.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

VERSION = "5.6.3"
FOLDER = Path(__file__).parents[2] / "build" / "diskcache"
LEAST = 0.8

LOCKED = "SQLite's locks: lsmkv.Cache serves one process, and its writers wait for each other without a timeout"
SQL = "SQLite's pragmas and statements"
FILES = "files for values: lsmkv.Cache has none"
NOT_APPLICABLE = {
    "test_pragma_error": SQL,
    "test_pragmas": SQL,
    "test_close_error": "a connection for each thread: lsmkv.Cache has no connections",
    "test_custom_eviction_policy": "eviction policies in SQL",
    "test_set_timeout": LOCKED,
    "test_add_timeout": LOCKED,
    "test_clear_timeout": LOCKED,
    "test_cull_timeout": LOCKED,
    "test_custom_filename_disk": FILES,
    "test_get_keyerror4": FILES,
    "test_cleanup_dirs": FILES,
    "test_disk_write_os_error": FILES,
    "test_check": "damages rows and files; lsmkv.verify and Cache.check have tests of their own",
    "test_integrity_check": "damages the SQLite file; lsmkv.verify and tests/crash know damaged files",
}


def fetch() -> Path:
    """Return the sdist, unpacked."""
    found = FOLDER / f"diskcache-{VERSION}"
    if not found.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        call = [
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(FOLDER),
            f"diskcache=={VERSION}",
        ]
        subprocess.run([sys.executable, "-m", *call], check=True)
        with tarfile.open(FOLDER / f"diskcache-{VERSION}.tar.gz") as sdist:
            sdist.extractall(FOLDER, filter="data")
    return found


class Tally:
    """Leaves out what does not apply, and counts the rest."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.passed = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.names = {item.name for item in items}
        items[:] = [item for item in items if item.name not in NOT_APPLICABLE]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed


def main() -> int:
    source = fetch()
    sys.path[:0] = [str(source), str(Path(__file__).parents[1])]
    import diskcache

    from diskcache_adapter import adapter

    diskcache.Cache = adapter.Cache
    tally = Tally()
    failed = pytest.main(
        [
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(source),
            *sys.argv[1:],
            str(source / "tests" / "test_core.py"),
        ],
        plugins=[tally],
    )
    for name, reason in NOT_APPLICABLE.items():
        print(f"not applicable: {name}: {reason}")
    print(f"{tally.passed} of {len(tally.names)} tests pass ({tally.passed / len(tally.names):.0%})")
    return int(failed or NOT_APPLICABLE.keys() - tally.names != set() or tally.passed < LEAST * len(tally.names))


if __name__ == "__main__":
    sys.exit(main())
