"""Options, faults, kills and reopens at random: every answer is the model's, and every open finds what it must."""

from __future__ import annotations

import pytest
from soak import figure, shards, share

import lsmkv

from . import oracle
from .randomized import Failed, Stream

SHARDS = shards(100)
SESSIONS = share(24, 5000, SHARDS)
SESSIONS_PER_STREAM = 12


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", SHARDS)
def test_everything_at_random(lab, folder, shard):
    for number in range(-(-SESSIONS // SESSIONS_PER_STREAM)):
        stream = Stream(lab, folder / str(number), f"everything/{shard}/{number}", keyspaces=number % 2 * 3)
        stream.run(min(SESSIONS_PER_STREAM, SESSIONS - number * SESSIONS_PER_STREAM))
        figure("everything at random", "0 wrong answers, 0 lost, 0 failed opens", **stream.counts)


@pytest.mark.parametrize("write", [lambda db: db.put(b"stranger", b""), lambda db: db.delete(next(iter(db)))])
def test_a_database_that_changed_behind_the_oracle_is_found(lab, folder, write):
    stream = Stream(lab, folder / "stream", "behind")
    stream.run(3)
    assert len(oracle.settled_state(folder / "stream" / "book")) > 10
    with lsmkv.open(folder / "stream" / "db") as db:
        write(db)
    with pytest.raises(Failed, match=r"invented|lost|not \["):
        stream.run(3)
