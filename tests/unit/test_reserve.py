"""The reserve: its size, and what is taken while it is in use."""

import errno
import os

import pytest

import lsmkv
from lsmkv.reserve import HEAD, LEAST, MOST, SHARE, wanted_size


def test_small_databases_have_none_and_large_ones_a_bounded_one():
    assert wanted_size(0) == wanted_size(LEAST * SHARE - 1) == 0
    assert wanted_size(LEAST * SHARE) == LEAST
    assert wanted_size(1 << 40) == MOST


@pytest.fixture
def db(tmp_path):
    with lsmkv.open(tmp_path / "db", write_buffer_size=1 << 20) as db:
        yield db


def reserve_of(db):
    return db._versions.reserve


def fill(db, n=2000):
    for i in range(n):
        db[b"%06d" % i] = os.urandom(1000)
    db.flush()


def test_a_flush_sets_space_aside(db):
    db[b"small"] = b"1"
    db.flush()
    assert not os.path.exists(os.path.join(db.path, "RESERVE"))
    fill(db)
    db.flush()
    assert reserve_of(db).size >= LEAST
    assert os.stat(os.path.join(db.path, "RESERVE")).st_blocks * 512 >= LEAST


def test_while_it_is_in_use_only_deletes_are_taken(db, monkeypatch):
    fill(db)
    reserve = reserve_of(db)
    assert reserve.release() and not reserve.release()
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(lsmkv.IOError) as raised:
        db[b"new"] = b"1"
    assert raised.value.errno == errno.ENOSPC
    mixed = lsmkv.WriteBatch()
    mixed.delete(b"000003")
    mixed.put(b"new", b"1")
    with pytest.raises(lsmkv.IOError):
        db.write(mixed)
    db.delete(b"000000")
    db.delete_range(b"000001", b"000003")
    deletes = lsmkv.WriteBatch()
    deletes.delete(b"000004")
    db.write(deletes)
    assert [db.get(b"%06d" % i) is None for i in range(6)] == [True, True, True, False, True, False]
    monkeypatch.undo()
    db[b"new"] = b"1"
    assert reserve.size >= LEAST


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_it_follows_the_size_of_the_database(db):
    reserve = reserve_of(db)
    reserve.keep(80 << 20)
    assert reserve.size == 10 << 20
    reserve.keep(70 << 20)
    assert reserve.size == 10 << 20  # near enough
    reserve.keep(8 << 20)
    assert reserve.size == 1 << 20
    reserve.keep(0)
    assert reserve.size == 0 and not os.path.exists(os.path.join(db.path, "RESERVE"))


def test_a_sparse_copy_sets_nothing_aside(db):
    path = os.path.join(db.path, "RESERVE")
    with open(path, "wb") as file:
        file.write(HEAD)
        file.truncate(4 << 20)
    assert reserve_of(db).size < LEAST
    reserve_of(db).keep(32 << 20)
    assert reserve_of(db).size == 4 << 20


@pytest.mark.parametrize("name", ["posix_fallocate", "open", "write", "unlink"])
def test_a_failure_to_set_space_aside_stops_nothing(db, monkeypatch, name):
    fill(db)
    reserve_of(db).release()
    real = getattr(os, name)

    def fail(*args, **kwargs):
        if name in ("posix_fallocate", "write") or str(args[0]).endswith("RESERVE"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, fail)
    reserve_of(db).keep(80 << 20)
    reserve_of(db).release()
    monkeypatch.undo()
    reserve_of(db).refill()
    db[b"after"] = b"1"


def test_work_that_finds_no_room_runs_again_without_the_reserve(db):
    fill(db)
    reserve = reserve_of(db)
    seen = []

    def work():
        seen.append(reserve.size)
        if reserve.size:
            no_room()
        return "done"

    assert reserve.spend(work) == "done"
    assert seen[0] > 0 and seen[1] == 0 and reserve.size > 0


def test_destroy_removes_it(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        reserve_of(db).keep(8 << 20)
    assert (path / "RESERVE").exists()
    lsmkv.destroy(path)
    assert not path.exists()


def test_a_file_of_another_program_with_its_name_is_left_alone(tmp_path):
    (tmp_path / "RESERVE").write_text("mine")
    with pytest.raises(lsmkv.IOError):
        lsmkv.open(tmp_path)
    lsmkv.destroy(tmp_path)
    assert (tmp_path / "RESERVE").read_text() == "mine"
