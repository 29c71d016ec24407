"""Filter debt, rebuilt filters, and merges that wasted reads pay for."""

import pytest
from databases import fill, keep_still

import lsmkv


@pytest.mark.parametrize(("level", "error"), [(-1, ValueError), (7, ValueError), ("a", TypeError)])
def test_rebuild_filters_refuses_levels_that_do_not_exist(db, level, error):
    with pytest.raises(error, match=r"level|integer"):
        db.rebuild_filters(level)


def test_rebuild_filters(path):
    with lsmkv.open(path, bits_per_key=6) as db:
        fill(db, 2000)
        db.flush()
        before = list(db.items())
        db.set_options(bits_per_key=14)
        assert list(db.filter_debt().values()) == ["bits"]
        assert db.rebuild_filters() == 1
        assert db.filter_debt() == {}
        (f,) = db._versions.default.current.files()
        assert f.millibits == 14000
        assert list(db.items()) == before
        assert db.rebuild_filters() == 0
    assert lsmkv.verify(path)


def test_filter_debt_is_paid_in_the_background(path):
    with lsmkv.open(path, bits_per_key=6, filter_debt_ratio=0.1) as db:
        fill(db, 2000)
        db.flush()
        db.set_options(bits_per_key=14)
        db._scheduler.wait_idle()
        assert db.filter_debt() == {}
        assert db.background.filter_rebuilds == 1


def test_a_table_without_keys_owes_no_filter(path):
    with lsmkv.open(path, bits_per_key=10) as db:
        keep_still(db)
        db.delete_range(b"a", b"z")
        db.flush()
        assert [f.entries for f in db._versions.default.current.levels[0]] == [0]
        assert list(db.filter_debt().values()) == ["absent"]
        assert db._work.filters.payable() == {}
        assert db.rebuild_filters() == 0


def test_a_table_with_many_wasted_reads_is_merged(path):
    options = {"bits_per_key": 0, "l0_compaction_trigger": 4, "row_cache_size": 0}
    with lsmkv.open(path, **options) as db:
        for half in (0, 1):
            for i in range(half, 200, 2):
                db[b"%06d" % i] = b"v"
            db.flush()
        for i in range(0, 200, 2):
            for _ in range(15):
                assert db.get(b"%06d" % i) == b"v"
        db._scheduler.wake()
        db._scheduler.wait_idle()
        assert db.background.reasons["seeks"] == 1
        assert not db._versions.default.current.levels[0]
