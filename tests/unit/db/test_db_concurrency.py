"""Arguments that another thread changes while a call waits."""

import gc
import threading
import time

import pytest
from databases import fill

import lsmkv
from lsmkv import prefixed


def start_and_hold(db, work):
    """Runs `work`, which writes, in a thread that waits as for an L0 that is too full."""
    db._engine.set_stopped(True)
    thread = threading.Thread(target=work)
    thread.start()
    while not db._engine.counters(db._live)["stops"]:
        time.sleep(0.001)
    return thread


def release_writer(db, thread):
    db._engine.set_stopped(False)
    thread.join()


def test_a_batch_cannot_change_while_it_is_written(db):
    batch = db.write_batch()
    batch.put(b"a", b"1")
    other = db.write_batch()
    other.put(b"b", b"2")
    thread = start_and_hold(db, lambda: db.write(batch))
    for change in [
        lambda: batch.put(b"large", bytes(1 << 20)),
        lambda: batch.put(bytearray(b"large"), bytes(1 << 20)),
        lambda: batch.delete(b"a"),
        lambda: batch.delete_range(b"a", b"b"),
        lambda: batch.append(other),
        batch.clear,
        batch.write,
    ]:
        with pytest.raises(BufferError):
            change()
    release_writer(db, thread)
    assert dict(db.items()) == {b"a": b"1"}
    batch.append(other)
    batch.write()
    assert dict(db.items()) == {b"a": b"1", b"b": b"2"}


def test_a_batch_can_be_changed_after_a_write_that_failed(db):
    batch = db.write_batch()
    batch.put(b"a", b"1")

    def write():
        with pytest.raises(lsmkv.Error):
            db.write(batch)

    thread = start_and_hold(db, write)
    db._engine.refuse(lsmkv.IOError(5, "for a test"))
    release_writer(db, thread)
    batch.clear()
    assert len(batch) == 0


@pytest.mark.parametrize("write", ["put", "delete"])
def test_a_key_that_changes_while_its_write_waits_is_copied_first(db, write):
    db.put(b"one", b"1")
    db.put(b"two", b"2")
    key = bytearray(b"one")
    arguments = [key, b"3"] if write == "put" else [key]
    thread = start_and_hold(db, lambda: getattr(db, write)(*arguments))
    key[:] = b"two"
    release_writer(db, thread)
    assert dict(db.items()) == {name: db[name] for name in db}
    assert db.get(b"one") == (b"3" if write == "put" else None)
    assert db.get(b"two") == b"2"


def test_multi_get_copies_a_list_that_changes_meanwhile(db):
    """A collection of garbage, which may run any code, while a key was turned into bytes."""
    fill(db, 100)
    asked = [bytearray(b"key%06d" % i) for i in range(100)]
    expected = [db[bytes(key)] for key in asked]
    keys = list(asked)

    def empty_it(phase, info):
        keys[:] = [b"absent"] * len(keys)

    threshold = gc.get_threshold()
    gc.callbacks.append(empty_it)
    gc.set_threshold(1)
    try:
        found = db.multi_get(keys)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(empty_it)
    assert keys[0] == b"absent"
    assert found == expected


def test_clear_is_one_moment_beside_a_writer(db):
    """It looked for the last key, then deleted up to it. Of two writes in between, the earlier one could survive."""
    db[b"b"] = b"old"
    reached = []
    iterator = type(db).iterator

    class Slow:
        """The same database, with a writer that comes in while `clear` looks for the last key."""

        def __getattr__(self, name):
            return getattr(db, name)

        def iterator(self, **bounds):
            found = iterator(db, **bounds)

            def write():
                db[b"c"] = b"1"
                db[b"a"] = b"2"

            thread = threading.Thread(target=write)
            thread.start()
            thread.join(0.2)
            reached.append(thread)
            return found

    prefixed.delete_from(Slow(), b"")
    for thread in reached:
        thread.join()
    assert reached
    assert (b"c" in db) <= (b"a" in db)


def test_readers_see_a_batch_whole(db):
    """Small batches and ones that are written without the GIL, seen by reads of one state."""
    keys = [b"%02d" % i for i in range(16)]
    done = threading.Event()
    torn = []

    def read():
        while not done.is_set():
            with db.snapshot() as snapshot:
                seen = [db.multi_get(keys), [snapshot.get(key) for key in keys], [v for _, v in db.items()]]
            torn.extend(values for values in seen if len(set(values)) > 1)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for round_ in range(400):
            value = b"%d" % round_ * (1 if round_ % 20 else 5000)
            with db.write_batch() as batch:
                for key in keys:
                    batch.put(key, value)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert torn == []
