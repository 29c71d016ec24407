"""A compaction on a full disk: one edit per few tables of the output level, with the same answers."""

import errno
import os
import random
from types import SimpleNamespace

import pytest

import lsmkv
from lsmkv.compaction import jobs
from lsmkv.compaction.jobs import Jobs
from lsmkv.compaction.subcompaction import pieces

TINY = {"write_buffer_size": 32 << 10, "target_file_size": 8 << 10, "block_size": 1024, "l0_compaction_trigger": 2}


def test_pieces_are_runs_of_about_a_size():
    files = [SimpleNamespace(size=size) for size in (5, 5, 1, 20, 3, 3)]
    assert [[f.size for f in piece] for piece in pieces(files, 10)] == [[5, 5], [1], [20], [3, 3]]


@pytest.fixture
def in_pieces(monkeypatch):
    """No compaction fits on the disk as a whole. Counts the pieces."""
    whole, replace = Jobs._compact, Jobs._replace
    edits = []

    def compact(self, plan, shifts, parts):
        if len(plan.lower) > 1:
            raise lsmkv.IOError(errno.ENOSPC, "writing a table: No space left on device", "db")
        return whole(self, plan, shifts, parts)

    def count(self, inputs, outcome, plan, shifts):
        edits.append(plan)
        return replace(self, inputs, outcome, plan, shifts)

    monkeypatch.setattr(Jobs, "_compact", compact)
    monkeypatch.setattr(Jobs, "_replace", count)
    return edits


def write(db, rng, model):
    for _ in range(2000):
        key = b"%04d" % rng.randrange(2000)
        if rng.random() < 0.2:
            db.delete(key)
            model.pop(key, None)
        elif rng.random() < 0.01:
            stop = b"%04d" % rng.randrange(2000)
            db.delete_range(key, stop)
            for gone in [k for k in model if key <= k < stop]:
                del model[gone]
        else:
            db[key] = model[key] = rng.randbytes(rng.randrange(200))


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_a_whole_compaction(tmp_path, in_pieces, seed):
    rng = random.Random(seed)
    model = {}
    with lsmkv.open(tmp_path / "db", **TINY) as db:
        for _ in range(3):
            write(db, rng, model)
            assert dict(db.items()) == model
            db.compact_range()
            assert dict(db.items()) == model
        assert len(in_pieces) > 2 * len({id(plan) for plan in in_pieces}) > 4
    with lsmkv.open(tmp_path / "db", **TINY) as db:
        assert dict(db.items()) == model
    assert lsmkv.verify(tmp_path / "db")


@pytest.mark.parametrize("seed", range(3))
def test_the_oldest_tables_of_l0_go_first_as_far_as_there_is_room(tmp_path, in_pieces, monkeypatch, seed):
    monkeypatch.setattr(jobs, "free_space", lambda directory: 0)
    rng = random.Random(seed)
    model = {}
    with lsmkv.open(tmp_path / "db", **TINY) as db:
        for _ in range(3):
            pause = db._manual().pause_compaction()  # so that L0 has several tables
            write(db, rng, model)
            pause.release()
            db._scheduler.wait_idle()
            assert dict(db.items()) == model
        assert [len(plan.upper) for plan in in_pieces if plan.level == 0 and len(plan.lower) > 1].count(1) > 4
        assert all(len(plan.upper) == 1 for plan in in_pieces if plan.level == 0 and len(plan.lower) > 1)
    with lsmkv.open(tmp_path / "db", **TINY) as db:
        assert dict(db.items()) == model


def test_a_piece_that_fails_leaves_the_earlier_ones_in_place(tmp_path, in_pieces, monkeypatch):
    replace = Jobs._replace
    with lsmkv.open(tmp_path / "db", **TINY) as db:
        pause = db._manual().pause_compaction()  # only this test compacts
        for part in range(2):
            for i in range(1000):
                db[b"%04d" % (i * 7 % 1000)] = b"%d" % part + os.urandom(100)  # each table of L0 spans all keys
            if part == 0:
                db.compact_range()
        expected = dict(db.items())
        in_pieces.clear()

        def fail_third(self, *args):
            if len(in_pieces) == 2:
                raise lsmkv.IOError(errno.ENOSPC, "No space left on device", "db")
            return replace(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(Jobs, "_replace", fail_third)
            with pytest.raises(lsmkv.IOError):
                db.compact_range()
        assert len(in_pieces) == 2
        assert dict(db.items()) == expected
        db.compact_range()
        assert dict(db.items()) == expected
        assert not db._versions.default.current.levels[0]
        pause.release()
