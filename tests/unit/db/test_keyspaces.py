"""Keyspaces: trees of their own in one database."""

import os
import shutil
import threading

import pytest

import lsmkv
from lsmkv.log_supply import new_memtable
from lsmkv.version.manifest import AppendRefused
from tests.unit.waiting import wait_until


def fill(mapping, count, tag=b"", step=1):
    for i in range(0, count, step):
        mapping[b"%06d" % i] = b"%b%d" % (tag, i)


def table_files(path):
    return {name for name in os.listdir(path) if name.endswith(".sst")}


def test_keyspaces_do_not_see_each_other(db):
    users, cities = db.keyspace("users"), db.keyspace("cities")
    for place, value in ((db, b"0"), (users, b"1"), (cities, b"2")):
        place[b"a"] = value
    users.delete(b"a")
    assert (db[b"a"], users.get(b"a"), cities[b"a"]) == (b"0", None, b"2")
    assert [dict(place) for place in (db, users, cities)] == [{b"a": b"0"}, {}, {b"a": b"2"}]
    cities.delete_range(b"a", b"b")
    assert dict(cities) == {} and dict(db) == {b"a": b"0"}


def test_the_names_and_options_survive_a_reopen(path):
    with lsmkv.open(path) as db:
        db.keyspace("users", bits_per_key=[12, 8], prefix_extractor=b":")
        db.keyspace("Städte", compression=None)
        assert db.keyspaces() == ["Städte", "users"]
    with lsmkv.open(path) as db:
        assert db.keyspaces() == ["Städte", "users"]
        users = db.keyspace("users", create=False)
        assert users.options.bits_per_key == (12.0, 8.0) and users.options.prefix_extractor == b":"
        assert db.keyspace("Städte").options.compression is None
        assert db.options.compression == "lz4" and db.options.bits_per_key == 10.0


def test_an_open_with_the_same_options_writes_no_edit(path):
    with lsmkv.open(path) as db:
        db.keyspace("users", bits_per_key=[12, 8], prefix_extractor=b":")
        before = db._versions.state.records
        db.keyspace("users", bits_per_key=[12, 8])
        db.keyspace("users", prefix_extractor=b":")
        assert db._versions.state.records == before
        db.keyspace("users", bits_per_key=[12, 9])
        assert db._versions.state.records == before + 1


def test_options_that_all_keyspaces_share_are_refused(db):
    with pytest.raises(lsmkv.OptionError, match="whole database"):
        db.keyspace("users", wal=None)
    with pytest.raises(lsmkv.OptionError, match="did you mean"):
        db.keyspace("users", bits_per_kei=3)
    assert db.keyspaces() == []
    with pytest.raises(lsmkv.OptionError, match="whole database"):
        db.keyspace("users").set_options(write_buffer_size=1 << 20)


@pytest.mark.parametrize("name", ["", "x" * 256, "ä" * 128])
def test_a_name_has_1_to_255_bytes(db, name):
    with pytest.raises(ValueError, match="255"):
        db.keyspace(name)


def test_a_name_is_text(db):
    with pytest.raises(TypeError, match="str"):
        db.keyspace(b"users")


def test_a_missing_keyspace_is_created_only_if_asked_for(db):
    for call in (lambda: db.keyspace("users", create=False), lambda: db.drop_keyspace("users")):
        with pytest.raises(lsmkv.KeyspaceError, match="there is no keyspace 'users'"):
            call()
    assert db.keyspaces() == []


def test_options_of_a_keyspace_shape_its_tables(db):
    users = db.keyspace("users", bits_per_key=20)
    fill(db, 1000)
    fill(users, 1000)
    db.flush()
    bits = lambda place: place.stats().levels[0].filter.memory_bytes  # noqa: E731
    assert bits(users) > 1.8 * bits(db)
    users.set_options(bits_per_key=0)
    assert users.rebuild_filters() == 1 and db.rebuild_filters() == 0
    assert sum(level.filter.memory_bytes for level in users.stats().levels) == 0


def test_a_batch_spans_keyspaces(path):
    with lsmkv.open(path) as db:
        users = db.keyspace("users")
        db.put(b"gone", b"1")
        users.put(b"gone", b"1")
        with db.write_batch() as batch:
            batch.put(b"a", b"0")
            batch.put(b"a", b"1", keyspace=users)
            batch.delete(b"gone", keyspace=users)
            batch.delete_range(b"g", b"h")
        assert dict(db) == {b"a": b"0"} and dict(users) == {b"a": b"1"}
        with users.write_batch() as batch:
            batch.put(b"b", b"1")
            batch.put(b"b", b"0", keyspace=db)
        assert db[b"b"] == b"0" and users[b"b"] == b"1"
    with lsmkv.open(path) as db:
        assert dict(db) == {b"a": b"0", b"b": b"0"}
        assert dict(db.keyspace("users")) == {b"a": b"1", b"b": b"1"}


def test_a_free_batch_takes_the_database_of_its_keyspaces(db, tmp_path):
    users = db.keyspace("users")
    batch = lsmkv.WriteBatch()
    batch.put(b"a", b"1", keyspace=users)
    db.write(batch)
    assert users[b"a"] == b"1"
    with lsmkv.open(tmp_path / "other") as other:
        strange = other.keyspace("users")
        with pytest.raises(ValueError, match="another database"):
            batch.put(b"a", b"1", keyspace=strange)
        with pytest.raises(ValueError, match="another database"):
            other.write(batch)
        more = lsmkv.WriteBatch()
        more.put(b"a", b"1", keyspace=strange)
        with pytest.raises(ValueError, match="another database"):
            batch.append(more)
    with pytest.raises(TypeError, match="Keyspace"):
        batch.put(b"a", b"1", keyspace="users")


def test_a_keyspace_refuses_a_batch_that_was_made_elsewhere(db):
    users, batch = db.keyspace("users"), lsmkv.WriteBatch()
    batch.put(b"a", b"1")
    with pytest.raises(ValueError, match="write_batch"):
        users.write(batch)
    assert dict(users) == {} and dict(db) == {}


def test_a_snapshot_spans_keyspaces(db):
    users = db.keyspace("users")
    users[b"a"] = b"1"
    with db.snapshot() as before:
        with db.write_batch() as batch:
            batch.put(b"a", b"2", keyspace=users)
            batch.put(b"b", b"2")
        db.flush()
        users.compact_range()
        late = db.keyspace("late")
        assert dict(before) == {} and dict(before.keyspace(users)) == {b"a": b"1"}
        assert before.keyspace(db).get(b"b") is None
        with pytest.raises(lsmkv.KeyspaceError, match="after the snapshot"):
            before.keyspace(late)
        view = before.keyspace(users)
    assert view[b"a"] == b"1"
    with pytest.raises(lsmkv.ClosedError):
        before.keyspace(users)
    view.close()


def test_a_snapshot_of_a_keyspace_shows_that_keyspace(db):
    users = db.keyspace("users")
    users[b"a"] = b"1"
    with users.snapshot() as before:
        users[b"a"] = b"2"
        assert dict(before) == {b"a": b"1"} and dict(before.keyspace(db)) == {}


def test_a_dropped_keyspace_is_gone_and_its_space_given_back(path):
    with lsmkv.open(path) as db:
        users = db.keyspace("users")
        fill(users, 2000)
        db[b"a"] = b"1"
        users.flush()
        before = table_files(path)
        iterator = iter(users.items())
        next(iterator)
        snapshot = db.snapshot()
        db.drop_keyspace("users")
        assert db.keyspaces() == []
        # Readers from before the drop stay valid.
        assert len(list(iterator)) == 1999 and snapshot.keyspace(users).get(b"000001") == b"1"
        snapshot.close()
        del iterator
        calls = (
            lambda: users.get(b"a"),
            lambda: users.put(b"a", b"1"),
            lambda: users.delete(b"a"),
            lambda: users.delete_range(b"a", b"b"),
            lambda: users.multi_get([b"a"]),
            lambda: list(users),
            lambda: users.compact_range(),
            lambda: users.stats(),
            lambda: users.clear(),
            lambda: users.snapshot(),
            lambda: users.set_options(bits_per_key=3),
            lambda: users.ingest(["missing.sst"]),
        )
        for call in calls:
            with pytest.raises(lsmkv.KeyspaceError):
                call()
        batch = db.write_batch()
        batch.put(b"b", b"1")
        batch.put(b"b", b"1", keyspace=users)
        with pytest.raises(lsmkv.KeyspaceError):
            batch.write()
        assert dict(db) == {b"a": b"1"}
        wait_until(lambda: db._versions.collect_garbage() or len(table_files(path) & before) == 1)
    with lsmkv.open(path) as db:
        assert db.keyspaces() == [] and dict(db) == {b"a": b"1"}
        # Ids are not used again: old records never reach a new keyspace.
        assert db.keyspace("users").keyspace_id == 2 and dict(db.keyspace("users")) == {}


def test_a_name_can_be_used_again_after_a_drop(path):
    with lsmkv.open(path) as db:
        for i in range(3):
            users = db.keyspace("users")
            assert dict(users) == {}
            users[b"a"] = b"%d" % i
            if i < 2:
                db.drop_keyspace("users")
    with lsmkv.open(path) as db:
        assert dict(db.keyspace("users")) == {b"a": b"2"}


def test_a_flush_writes_all_keyspaces_with_one_edit(db):
    users, idle = db.keyspace("users"), db.keyspace("idle")
    fill(db, 10)
    fill(users, 10)
    records = db._versions.state.records
    db.flush()
    assert db._versions.state.records == records + 1
    sizes = [len(place._tree.current.levels[0]) for place in (db, users, idle)]
    assert sizes == [1, 1, 0]
    assert db._engine.empty and not db._engine.immutables


def test_an_idle_keyspace_pins_no_log(path):
    with lsmkv.open(path, write_buffer_size=1 << 14) as db:
        idle, busy = db.keyspace("idle"), db.keyspace("busy")
        idle[b"a"] = b"1"
        fill(busy, 3000, b"x" * 50)
        db._scheduler.wait_idle()
        wait_until(lambda: len([name for name in os.listdir(path) if name.endswith(".wal")]) <= 3)
        assert idle[b"a"] == b"1" and len(busy) == 3000


def test_the_write_buffer_is_that_of_all_keyspaces(path):
    with lsmkv.open(path, write_buffer_size=1 << 20) as db:
        spaces = [db.keyspace(f"k{i}") for i in range(10)]
        for i in range(20_000):
            spaces[i % 10][b"%06d" % i] = b"x" * 100
            used = sum(memtable.used_bytes for memtable in (space._live.active for space in spaces))
            assert used <= (1 << 20) + (64 << 10)  # an index may grow
        assert db.background.flushes or db._engine.unflushed


def test_compaction_merges_each_keyspace_by_itself(path):
    with lsmkv.open(path, write_buffer_size=1 << 15) as db:
        spaces = [db, db.keyspace("a"), db.keyspace("b")]
        for i in range(6000):
            for n, space in enumerate(spaces):
                space[b"%06d" % (i % 1500)] = b"%d-%d" % (n, i)
        db.flush()
        db._scheduler.wait_idle()
        for n, space in enumerate(spaces):
            assert len(space) == 1500 and space[b"000007"] == b"%d-%d" % (n, 4507)
            assert len(space._tree.current.levels[0]) < 4
        numbers = [f.number for space in spaces for f in space._tree.current.files()]
        assert len(numbers) == len(set(numbers)) == len(db._versions.tables)


def test_a_running_compaction_of_a_dropped_keyspace_ends_quietly(db, monkeypatch):
    users = db.keyspace("users")
    for i in range(3):
        fill(users, 500, b"%d-" % i)
        db.flush()
    reached, go = threading.Event(), threading.Event()
    jobs = users._work.jobs
    run = jobs._run_kind

    def pause(*arguments):
        reached.set()
        assert go.wait(30)
        return run(*arguments)

    monkeypatch.setattr(jobs, "_run_kind", pause)
    errors = []

    def compact():
        try:
            users.compact_range()
        except lsmkv.Error as error:
            errors.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    assert reached.wait(30)
    db.drop_keyspace("users")
    go.set()
    thread.join(30)
    assert not thread.is_alive()
    assert all(isinstance(error, lsmkv.KeyspaceError) for error in errors)
    db[b"a"] = b"1"
    db.flush()
    assert db._engine.refusal is None and dict(db) == {b"a": b"1"}
    db._versions.collect_garbage()
    assert len(table_files(db.path)) == 1


def test_ingest_into_a_keyspace(db, tmp_path):
    users = db.keyspace("users")
    users[b"a"] = b"old"
    db[b"a"] = b"0"
    with lsmkv.SSTWriter(tmp_path / "x.sst", seed=db.seed) as writer:
        writer.put(b"a", b"new")
        writer.put(b"b", b"new")
    users.ingest([tmp_path / "x.sst"])
    assert dict(users) == {b"a": b"new", b"b": b"new"} and dict(db) == {b"a": b"0"}
    users[b"a"] = b"newer"
    path = db.path
    db.close()
    with lsmkv.open(path) as db:
        assert dict(db.keyspace("users")) == {b"a": b"newer", b"b": b"new"} and dict(db) == {b"a": b"0"}


@pytest.mark.parametrize("flushed", [False, True])
def test_clear_empties_one_keyspace(db, flushed):
    users = db.keyspace("users")
    fill(db, 100)
    fill(users, 100)
    if flushed:
        db.flush()
    users.clear()
    assert len(users) == 0 and len(db) == 100


def test_prefixes_of_a_keyspace(db):
    users = db.keyspace("users").prefixed_db(b"a:")
    users[b"x"] = b"1"
    with users.write_batch() as batch:
        batch.put(b"y", b"2")
    assert dict(db.keyspace("users")) == {b"a:x": b"1", b"a:y": b"2"} and dict(db) == {}
    with users.snapshot() as before:
        users.clear()
        assert dict(before) == {b"x": b"1", b"y": b"2"}
    assert dict(users) == {}


def test_the_row_cache_keeps_keyspaces_apart(db):
    users = db.keyspace("users")
    for place, tag in ((db, b"d"), (users, b"u")):
        fill(place, 300, tag)
    db.flush()
    db.compact_range()
    users.compact_range()
    for _ in range(20):
        for i in range(300):
            key = b"%06d" % i
            assert db[key] == b"d%d" % i and users[key] == b"u%d" % i
    assert db._live.counters()["row_hits"] and users._live.counters()["row_hits"]


def test_a_checkpoint_has_all_keyspaces(db, tmp_path):
    users = db.keyspace("users", bits_per_key=12)
    fill(users, 100)
    db[b"a"] = b"1"
    db.keyspace("gone")
    db.drop_keyspace("gone")
    db.checkpoint(tmp_path / "copy")
    users.clear()
    with lsmkv.open(tmp_path / "copy") as copy:
        assert copy.keyspaces() == ["users"] and len(copy.keyspace("users")) == 100 and dict(copy) == {b"a": b"1"}
        assert copy.keyspace("users").options.bits_per_key == 12
        assert copy.keyspace("new").keyspace_id == 3


def test_a_reader_sees_keyspaces_come_and_go(db):
    users = db.keyspace("users")
    users[b"a"] = b"1"
    with lsmkv.open(db.path, "r") as reader:
        view = reader.keyspace("users", create=False)
        assert view[b"a"] == b"1"
        users[b"a"] = b"2"
        db.keyspace("cities")[b"x"] = b"1"
        reader.refresh()
        assert view[b"a"] == b"2" and reader.keyspace("cities")[b"x"] == b"1"
        with pytest.raises(lsmkv.ReadOnlyError):
            reader.keyspace("new")
        with pytest.raises(lsmkv.ReadOnlyError):
            view.put(b"a", b"3")
        db.drop_keyspace("users")
        assert view[b"a"] == b"2"
        reader.refresh()
        with pytest.raises(lsmkv.KeyspaceError):
            view.get(b"a")
        assert reader.keyspaces() == ["cities"]


def test_a_reader_does_not_take_a_keyspace_of_a_recreated_database_for_its_own(path):
    with lsmkv.open(path) as db:
        db.keyspace("users")[b"a"] = b"1"
    reader = lsmkv.open(path, "r")
    view = reader.keyspace("users")
    with lsmkv.open(path, "n") as db:
        db.keyspace("cities")[b"a"] = b"2"
        db.flush()
        reader.refresh()
        with pytest.raises(lsmkv.KeyspaceError):
            view.get(b"a")
        assert reader.keyspace("cities")[b"a"] == b"2"
    reader.close()


def test_without_a_log_all_keyspaces_become_durable_together(path):
    with lsmkv.open(path, wal=None) as db:
        users = db.keyspace("users")
        with db.write_batch() as batch:
            batch.put(b"a", b"0")
            batch.put(b"a", b"1", keyspace=users)
        db.sync()
        assert db._engine.empty
    with lsmkv.open(path, wal=None) as db:
        assert db[b"a"] == b"0" and db.keyspace("users")[b"a"] == b"1"


def test_a_keyspace_keeps_its_database_open_until_it_goes(path, recwarn):
    keyspace = lsmkv.open(path).keyspace("users")
    keyspace[b"a"] = b"1"
    assert not keyspace.closed
    del keyspace
    with lsmkv.open(path) as db:
        assert db.keyspace("users")[b"a"] == b"1"


def test_large_batches_across_keyspaces(db):
    spaces = [db.keyspace(f"k{i}") for i in range(5)]
    batch = db.write_batch()
    for i in range(5000):
        batch.put(b"%06d" % i, b"x" * 40, keyspace=spaces[i % 5])
    assert batch.size_bytes > 64 << 10
    batch.write()
    assert [len(space) for space in spaces] == [1000] * 5


def test_concurrent_creations_of_one_name_give_one_keyspace(db):
    found = []
    threads = [threading.Thread(target=lambda: found.append(db.keyspace("users").keyspace_id)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 8 and db.keyspaces() == ["users"]


def test_writers_of_all_keyspaces_beside_creations_and_drops(path):
    with lsmkv.open(path, write_buffer_size=1 << 16) as db:
        stop, errors = threading.Event(), []

        def write(n):
            keyspace = db.keyspace(f"w{n}")
            i = 0
            try:
                while not stop.is_set():
                    with db.write_batch() as batch:
                        for j in range(200):
                            batch.put(b"%06d" % (i + j), b"y" * 30, keyspace=keyspace)
                            batch.put(b"%d-%06d" % (n, i + j), b"y" * 400)
                    i += 200
                    assert len(keyspace.multi_get([b"%06d" % k for k in range(i)], None)) == i
            except BaseException as error:
                errors.append(error)

        def churn():
            try:
                for i in range(30):
                    keyspace = db.keyspace(f"temporary-{i}")
                    fill(keyspace, 50)
                    db.drop_keyspace(f"temporary-{i}")
            except BaseException as error:
                errors.append(error)

        writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
        for thread in writers:
            thread.start()
        churning = threading.Thread(target=churn)
        churning.start()
        churning.join(120)
        stop.set()
        for thread in writers:
            thread.join(120)
        assert not errors and not churning.is_alive()
        sizes = [len(db.keyspace(f"w{n}")) for n in range(2)]
        assert len(db) == sum(sizes)
    with lsmkv.open(path) as db:
        assert db.keyspaces() == ["w0", "w1"] and [len(db.keyspace(f"w{n}")) for n in range(2)] == sizes


def killed(db, folder):
    """A copy of the files as a kill would leave them."""
    db._scheduler.wait_idle()
    copy = folder / "killed"
    # The next log is being made.
    shutil.copytree(db.path, copy, ignore=shutil.ignore_patterns("*.tmp"))
    return copy


def test_an_ingest_beside_an_idle_keyspace_survives_a_kill(db, tmp_path):
    """The empty memtable of the idle one belongs to the new log: else the old log would be replayed over the ingest."""
    db.keyspace("idle")
    db[b"a"] = b"old"
    with lsmkv.SSTWriter(tmp_path / "x.sst", seed=db.seed) as writer:
        writer.put(b"a", b"new")
    db.ingest([tmp_path / "x.sst"])
    with lsmkv.open(killed(db, tmp_path)) as copy:
        assert copy[b"a"] == b"new"


def test_a_drop_leaves_no_operation_of_its_keyspace_in_a_log(db, tmp_path):
    users = db.keyspace("users")
    fill(users, 50)
    db[b"a"] = b"1"
    db.drop_keyspace("users")
    db[b"b"] = b"2"
    with lsmkv.open(killed(db, tmp_path)) as copy:
        assert copy.keyspaces() == [] and dict(copy) == {b"a": b"1", b"b": b"2"}
        assert copy.recovery_report.entries == 1


def test_a_failed_rotation_leaves_all_keyspaces_as_they_were(db, monkeypatch):
    users = db.keyspace("users")
    db[b"a"], users[b"a"] = b"1", b"2"
    made = []

    def fail_second(*arguments):
        made.append(arguments)
        if len(made) == 2:
            raise MemoryError("injected")
        return new_memtable(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("lsmkv.log_supply.new_memtable", fail_second)
        with pytest.raises(MemoryError):
            db.flush()
    active = [space._live.active for space in (db, users)]
    db[b"b"], users[b"b"] = b"3", b"4"
    assert [space._live.active for space in (db, users)] == active
    db.flush()
    assert dict(db) == {b"a": b"1", b"b": b"3"} and dict(users) == {b"a": b"2", b"b": b"4"}


def test_a_failed_creation_leaves_nothing(db, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(type(db._versions.manifest), "stage", refuse)
        with pytest.raises(lsmkv.IOError):
            db.keyspace("users")
    assert db.keyspaces() == [] and [tree.keyspace for tree in db._engine.forest.trees] == [0]
    db.keyspace("users")[b"a"] = b"1"
    assert db.keyspaces() == ["users"]


def refuse(*arguments):
    raise AppendRefused(28, "injected", "MANIFEST")


def test_batches_are_whole_for_snapshots_beside_a_writer(path):
    with lsmkv.open(path, write_buffer_size=1 << 15) as db:
        spaces = [db, db.keyspace("a"), db.keyspace("b")]
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                with db.write_batch() as batch:
                    for space in spaces:
                        batch.put(b"n", b"%d" % number, keyspace=space)
                        batch.put(b"pad%d" % (number % 50), b"x" * 300, keyspace=space)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(2000):
                with db.snapshot() as snapshot:
                    assert len({snapshot.keyspace(space).get(b"n") for space in spaces}) == 1
        finally:
            stop.set()
            thread.join()
