"""What a write costs in system calls: none by itself, and one fdatasync for all who wait for one."""

from __future__ import annotations

import pytest

from .load import LOG_MODES


@pytest.mark.parametrize("wal", LOG_MODES)
def test_synced_writers_share_one_fdatasync(lab, folder, wal):
    """Seven writers come while an fdatasync runs: the next one serves them all."""
    outcome = lab.run("puts_during_a_sync", folder=str(folder / "db"), options={"wal": wal}, threads=8)
    assert outcome.ok, outcome.words()
    assert outcome.value == 1


def test_puts_into_a_mapped_log_are_no_system_calls(lab, folder):
    """But for the few that map the next window and prepare its pages."""
    outcome = lab.run("calls_of_puts", folder=str(folder / "db"), options={"wal": "mmap"}, count=5000)
    assert outcome.ok, outcome.words()
    assert outcome.value < 5000 / 100


def test_puts_into_a_written_log_are_one_call_each(lab, folder):
    outcome = lab.run("calls_of_puts", folder=str(folder / "db"), options={"wal": "write"}, count=500)
    assert outcome.ok, outcome.words()
    assert outcome.value >= 500
