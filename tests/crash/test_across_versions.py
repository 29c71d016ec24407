"""Databases of earlier versions go through random sessions of this one and hold what the model holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden.make import contents
from soak import figure, shards, share

import lsmkv

from .randomized import Stream

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = sorted(path.name for path in GOLDEN.glob("format-*"))
SHARDS = shards(20)
STREAMS = share(2, 200, SHARDS)
SESSIONS = 6


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("name", FORMATS)
def test_an_old_database_is_carried_forward(lab, folder, name, shard):
    for number in range(STREAMS):
        place = folder / str(number)
        shutil.copytree(GOLDEN / name, place / "db")
        assert lsmkv.verify(place / "db").findings == []
        with lsmkv.open(place / "db", "r") as db:
            assert dict(db.items()) == contents()
        stream = Stream(lab, place, f"{name}/{shard}/{number}", contents())
        stream.run(SESSIONS)
        figure(f"{name} carried forward", "0 wrong answers, 0 lost", databases=1, **stream.counts)
