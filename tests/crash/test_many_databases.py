"""Many databases in one process share its background threads, and none holds up another."""

from __future__ import annotations

import os

import pytest
from soak import figure, size

from lsmkv import background

from .iofault import Action
from .load import TINY


@pytest.mark.timeout(0)
def test_many_open_databases_hold_few_threads(lab, folder):
    count = size(100, 1000)
    options = {**TINY, "block_cache_size": 64 << 10}
    outcome = lab.run("many_databases", folder=str(folder), options=options, count=count, timeout=900)
    assert outcome.ok, outcome.words()
    threads = outcome.value
    assert (threads["wrong"], threads["compacted"]) == (0, count)
    compacting = max(background.COMPACTION_LIMIT, os.cpu_count() or 1)
    assert threads["opened"] == threads["closed"] == 0
    # Idle, one for each kind of work and the timer.
    assert threads["idle"] <= 4
    assert threads["most"] <= 2 * background.SHORT_LIMIT + compacting + 1
    figure("many open databases", "all flushed and compacted; at most 4 idle threads", databases=count)


@pytest.mark.parametrize("action", [Action.HOLD, Action.FAIL])
@pytest.mark.parametrize("bad", [1, 3])
def test_a_database_whose_syncs_hang_or_fail_holds_up_no_other(lab, folder, action, bad):
    options = {**TINY, "write_buffer_size": 16 << 10}
    outcome = lab.run("beside_a_bad_disk", folder=str(folder), options=options, bad=bad, action=int(action))
    assert outcome.ok, outcome.words()
    assert outcome.value == []
