"""Changes of keyspaces beside each other and beside a close."""

import threading

import pytest

import lsmkv
from lsmkv.keyspace import Keyspace
from lsmkv.keyspace_changes import create


@pytest.mark.parametrize("change", ["create", "options", "drop"])
def test_a_close_waits_for_a_change_of_a_keyspace(path, monkeypatch, change):
    """An edit after the close would write to a database that another process may have opened."""
    db = lsmkv.open(path)
    users = db.keyspace("users")
    db.flush()
    closer = threading.Thread(target=db.close)
    stage, closed = db._versions._stage, []

    def stage_beside_a_close(*arguments):
        closer.start()
        closer.join(0.3)
        closed.append(db.closed)
        return stage(*arguments)

    monkeypatch.setattr(db._versions, "_stage", stage_beside_a_close)
    changes = {
        "create": lambda: db.keyspace("cities"),
        "options": lambda: users.set_options(bits_per_key=12),
        "drop": lambda: db.drop_keyspace("users"),
    }
    changes[change]()
    monkeypatch.undo()
    closer.join(30)
    assert closed == [False]
    with lsmkv.open(path) as db:
        assert db.keyspaces() == {"create": ["cities", "users"], "options": ["users"], "drop": []}[change]
        if change == "options":
            assert db.keyspace("users").options.bits_per_key == 12


def test_options_set_at_once_by_two_threads_are_all_kept(path, monkeypatch):
    with lsmkv.open(path) as db:
        users = db.keyspace("users")
        other = threading.Thread(target=lambda: users.set_options(block_size=8192))
        stage = db._versions._stage

        def stage_beside_the_other(*arguments):
            monkeypatch.undo()
            other.start()
            other.join(0.3)
            return stage(*arguments)

        monkeypatch.setattr(db._versions, "_stage", stage_beside_the_other)
        users.set_options(bits_per_key=12)
        other.join(30)
        assert (users.options.bits_per_key, users.options.block_size) == (12, 8192)


def test_a_new_keyspace_has_its_options_as_soon_as_others_see_it(path):
    with lsmkv.open(path) as db:
        options = {"default_ttl": 60.0, "large_value_threshold": 100}
        keyspace = Keyspace(db, create(db._scheduler, db._logs, "tokens", options))
        keyspace.put(b"k", b"v")
        assert keyspace.ttl(b"k") is not None
        with keyspace.write_batch() as batch:
            batch.put(b"large", bytes(200))
        assert len(list(path.glob("*.vlog"))) == 1
