"""Flipped bytes, short files, zeroed files: right answers or clear errors, never anything else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from . import damage
from .load import LOG_MODES
from .sizes import figure, step

STEP = step(16)
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
    assert {"WAL", "SST", "MANIFEST", "CURRENT", "OPTIONS"} <= kinds
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
def test_damage_is_never_a_wrong_answer(lab, folder, specimen):
    image, wanted, wal = specimen
    text = {k.decode("latin-1"): v.decode("latin-1") for k, v in wanted.items()}
    # Only the log differs between the modes, and that little; the other files are damaged once.
    every = STEP if wal == "mmap" or STEP == 1 else STEP * 8
    plan = [d for d in damage.plan(image, every) if wal == "mmap" or damage.kind_of(d.name) == "WAL"]
    items = [[d.name, d.how, d.offset] for d in plan]
    tally: dict[str, int] = {}
    problems: list[str] = []
    for at in range(0, len(items), CHUNK):
        call = {"image": str(image), "place": str(folder / "t"), "wal": wal, "wanted": text}
        outcome = lab.run("damage_sweep", items=items[at : at + CHUNK], timeout=600, **call)
        assert outcome.ok, f"items {at}..{at + CHUNK} of {items[at]}: {outcome.words()}"
        problems += outcome.value["problems"]
        for key, count in outcome.value["tally"].items():
            tally[key] = tally.get(key, 0) + count
    assert problems == []
    assert any(key.endswith("refused") for key in tally)
    figure(f"damaged files, {wal} log", f"{sum(tally.values())} trials {dict(sorted(tally.items()))}")
