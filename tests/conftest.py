"""For all tests: where their files go, and what hypothesis may take for granted."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest
import soak
from hypothesis import settings

MEMORY = Path("/dev/shm")
ROOM = 2 << 30

# How long an example takes says something about the machine and nothing about the code.
settings.register_profile("lsmkv", deadline=None)
settings.load_profile("lsmkv")


def roomy(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize >= ROOM


# Files of tests live in memory where there is enough: thousands of fsyncs on a disk prove nothing more. Before
# anything asks for a temporary folder, and in the environment so that children agree.
if "TMPDIR" not in os.environ and roomy(MEMORY):
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # pytest itself may have asked already


# Soaks -------------------------------------------------------------------------------------------------------

PROGRESS_EVERY = 60.0  # seconds
# Instead of the limit in pyproject.toml, which is meant for the cut.
SOAK_TIMEOUT = 3600


def report_progress(terminal: pytest.TerminalReporter, stop: threading.Event) -> None:
    """A soak is an hour of dots otherwise."""
    began, known = time.monotonic(), set()
    while not stop.wait(PROGRESS_EVERY):
        minutes = (time.monotonic() - began) / 60
        fresh = [line for line in soak.summary() if line not in known]
        known.update(fresh)
        terminal.ensure_newline()
        for line in fresh:
            terminal.write_line(f"[{minutes:.0f} min] {line}")


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if soak.COUNTED and not hasattr(config, "workerinput"):
        soak.start()
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if soak.SOAK and terminal is not None:
            stop = threading.Event()
            config.add_cleanup(stop.set)
            threading.Thread(target=report_progress, args=(terminal, stop), daemon=True).start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    done = soak.passed()
    for item in items if soak.SOAK else ():
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SOAK_TIMEOUT))
        if item.nodeid in done:
            item.add_marker(pytest.mark.skip(reason="passed before the soak was interrupted"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Workers report to the process that started them, which notes each test once.
    if soak.SOAK and "PYTEST_XDIST_WORKER" not in os.environ and report.when == "call" and report.passed:
        soak.note_passed(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if soak.COUNTED and (lines := soak.summary()):
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
