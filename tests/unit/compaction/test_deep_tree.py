"""A tree that uses every level."""

import logging
import random

import pytest

import lsmkv
from lsmkv.compaction.picker import CompactionPlan, PlanKind
from lsmkv.options import MAX_LEVELS
from lsmkv.version.version import EVERYTHING

DEEP = {
    "write_buffer_size": 4096,
    "target_file_size": 4096,
    "l0_compaction_trigger": 1,
    "level_size_ratio": 2,
    "compression": None,
}
LAST = MAX_LEVELS - 1


@pytest.fixture
def db(tmp_path):
    with lsmkv.open(tmp_path / "db", **DEEP) as db:
        yield db
        assert db.background.last_error is None
    assert lsmkv.verify(tmp_path / "db").findings == []


def fill(db):
    """Random keys until every level holds tables."""
    rng, model, used = random.Random(1), {}, set()
    while used != set(range(1, MAX_LEVELS)) or len(model) < 2000:
        assert len(model) < 50_000, used
        for _ in range(100):
            key = b"%06d" % rng.randrange(10**6)
            db[key] = model[key] = rng.randbytes(100)
        used |= {level for level, files in enumerate(db._versions.default.current.levels[1:], 1) if files}
    return model


@pytest.mark.parametrize("bounds", [(), (b"5", b"6"), (b"999999", None), (b"x", b"y")])
def test_compact_range_reaches_the_last_level_and_ends(db, bounds):
    model = fill(db)
    db.delete_range(b"55", b"56")
    model = {key: value for key, value in model.items() if not b"55" <= key < b"56"}
    db.compact_range(*bounds)
    db.compact_range(*bounds)
    assert dict(db.items()) == model
    if not bounds:
        db._scheduler.wait_idle()
        levels = db._versions.default.current.levels
        assert [bool(files) for files in levels] == [False] * LAST + [True]
        assert not any(f.deletes or f.range_tombstones for f in levels[LAST])


def test_compact_range_in_the_background_leaves_the_database_writable(db):
    model = fill(db)
    db.compact_range(wait=False)
    db._scheduler.wait_idle()
    db[b"a"] = model[b"a"] = b"1"
    assert dict(db.items()) == model


def test_every_call_that_walks_the_levels(db):
    model = fill(db)
    db._scheduler.wait_idle()
    db.set_options(bits_per_key=12)
    assert db.rebuild_filters(LAST) == len(db._versions.default.current.levels[LAST]) > 0
    db.rebuild_filters()
    assert db.stats().levels[LAST].files > 0
    assert db.property(f"lsmkv.num-files-at-level{LAST}") != "0"
    assert db.property(f"lsmkv.num-files-at-level{LAST + 1}") is None
    assert db._versions.default.current.below(LAST, EVERYTHING) == []
    key = min(model)
    assert db.explain(key).found and dict(db.items()) == model


def test_both_planes_count_the_same_levels(db):
    assert len(db._engine.counters(db._live)["levels"]) == len(db.stats().levels) == MAX_LEVELS
    with pytest.raises(ValueError, match=f"level must be from 0 to {LAST}"):
        db.rebuild_filters(MAX_LEVELS)


def test_a_shift_during_a_compaction_loses_no_tombstone(tmp_path, monkeypatch):
    """The compaction took its output level from after the shift and the files below from before it."""
    with lsmkv.open(tmp_path / "db") as db:
        tree = db._tree
        db._work.claims.suspended += 1
        db[b"a"] = db[b"c"] = b"1"
        db.compact_range()
        tree.apply(shift=1, reason="")
        db[b"b"] = b"2"
        del db[b"a"]
        db.flush()
        tables_of, shifts = tree.tables_of, iter([1])

        def shift_once(files):
            for by in shifts:
                tree.apply(shift=by, reason="")
            return tables_of(files)

        monkeypatch.setattr(tree, "tables_of", shift_once)
        plan = CompactionPlan(PlanKind.COMPACT, 0, 1, upper=tree.current.levels[0])
        db._manual().run(lambda version, busy: plan)
        assert [len(files) for files in tree.current.levels[:4]] == [0, 0, 1, 1]
        assert dict(db.items()) == {b"b": b"2", b"c": b"1"}


class Bug(Exception):
    pass


def fail(*_):
    raise Bug("unexpected")


@pytest.mark.parametrize("wait", [True, False])
def test_an_unexpected_error_of_a_manual_compaction_leaves_the_database_writable(tmp_path, wait, caplog):
    with lsmkv.open(tmp_path / "db") as db:
        db[b"a"] = b"1"
        if wait:
            with pytest.raises(Bug):
                db.compact_range(progress=fail)
        else:
            with caplog.at_level(logging.ERROR, "lsmkv"):
                db.compact_range(progress=fail, wait=False)
                db._scheduler.wait_idle()
            assert db.background.errors == 1
            assert db.background.last_error == "compact-range: unexpected"
            assert "Bug: unexpected" in caplog.text
        db[b"b"] = b"2"
        db.compact_range()
        assert dict(db.items()) == {b"a": b"1", b"b": b"2"}
