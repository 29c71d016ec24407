"""What writes and sessions cost in system calls: a put none by itself, synced puts one fdatasync together."""

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


def test_a_short_session_takes_few_syncs(lab, folder):
    """A new log, a table and an edit: five. Every fourth open also merges the tables of L0."""
    outcome = lab.run("syncs_of_sessions", folder=str(folder / "db"), count=40)
    assert outcome.ok, outcome.words()
    assert outcome.value <= 40 * 7
