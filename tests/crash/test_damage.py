"""Flipped bytes, short files, zeroed files: right answers or clear errors, never anything else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from soak import figure, shards, step

from . import damage
from .load import LOG_MODES

STEP = step(16)
SHARDS = shards(8)
CHUNK = 400


@pytest.fixture(scope="module", params=LOG_MODES)
def specimen(request):
    folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
    wanted = damage.build(folder / "db", folder / "image", request.param)
    yield folder / "image", wanted, request.param
    shutil.rmtree(folder)


def test_the_specimen_has_every_kind_of_file(specimen):
    image, wanted, _ = specimen
    kinds = {damage.kind_of(path.name) for path in image.iterdir()}
    assert {"WAL", "SST", "VLOG", "MANIFEST", "CURRENT", "OPTIONS", "SYNCED"} <= kinds
    assert sum(path.suffix == ".sst" for path in image.iterdir()) >= 2
    assert len(wanted) > 50


def test_the_undamaged_specimen_reads_right(specimen, folder):
    image, wanted, wal = specimen
    trial = damage.Trial(image, folder / "copy", wanted, wal)
    nothing = next(damage.plan(image, 1))
    trial.copy(nothing.name)
    with damage.lsmkv.open(folder / "copy", "w", **damage.OPTIONS, wal=wal) as db:
        assert dict(db.items()) == wanted


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", SHARDS)
def test_damage_is_never_a_wrong_answer(lab, folder, specimen, shard):
    image, wanted, wal = specimen
    text = {k.decode("latin-1"): v.decode("latin-1") for k, v in wanted.items()}
    # Only the log differs between the modes, and that little; the other files are damaged once.
    every = STEP if wal == "mmap" or STEP == 1 else STEP * 8
    plan = [d for d in damage.plan(image, every) if wal == "mmap" or damage.kind_of(d.name) == "WAL"]
    items = [[d.name, d.how, d.offset] for d in plan][shard :: len(SHARDS)]
    refused = 0
    for at in range(0, len(items), CHUNK):
        call = {"image": str(image), "place": str(folder / "t"), "wal": wal, "wanted": text}
        outcome = lab.run("damage_sweep", items=items[at : at + CHUNK], timeout=600, **call)
        assert outcome.ok, f"items {at}..{at + CHUNK} of {items[at]}: {outcome.words()}"
        assert outcome.value["problems"] == []
        tally = outcome.value["tally"]
        refused += sum(count for key, count in tally.items() if key.endswith("refused"))
        tally = {"trials": sum(tally.values()), **dict(sorted(tally.items()))}
        figure(f"damaged files, {wal} log", "0 wrong answers, 0 crashes, 0 files changed by a refusal", **tally)
    assert refused
