"""Snapshots and prefixes."""

import pytest
from databases import fill

import lsmkv


def test_snapshot_is_a_mapping_of_one_moment(db):
    fill(db, 10)
    with db.snapshot() as snapshot:
        db[b"new"] = b"1"
        del db[b"key000001"]
        assert len(snapshot) == 10 and b"new" not in snapshot and b"key000001" in snapshot
        assert list(snapshot) == [b"key%06d" % i for i in range(10)]
        assert snapshot.multi_get([b"new", b"key000001"])[0] is None
        assert dict(snapshot.items()) == {key: snapshot[key] for key in snapshot}
        assert snapshot.get(b"new", b"?") == b"?"
        assert next(iter(snapshot.keys(prefix=b"key", reverse=True))) == b"key000009"
    with pytest.raises(lsmkv.ClosedError):
        snapshot.get(b"a")


def test_prefixed_db(db):
    db[b"other"] = b"1"
    users = db.prefixed_db(b"user:")
    users[b"ada"] = b"1815"
    users[b"alan"] = b"1912"
    assert db[b"user:ada"] == b"1815"
    assert dict(users.items()) == {b"ada": b"1815", b"alan": b"1912"}
    assert len(users) == 2 and b"ada" in users and b"other" not in users
    assert users.multi_get([b"alan", b"x"]) == [b"1912", None]
    assert list(users.keys(reverse=True)) == [b"alan", b"ada"]
    nested = users.prefixed_db(b"al")
    assert list(nested.items()) == [(b"an", b"1912")]
    frozen = users.snapshot()
    with users.write_batch() as batch:
        batch.put(b"grace", b"1906")
        batch.delete(b"ada")
    assert list(users) == [b"alan", b"grace"]
    assert list(frozen) == [b"ada", b"alan"]
    iterator = users.iterator(include_value=False)
    iterator.seek(b"b")
    assert next(iterator) == b"grace"
    assert iterator.prev() == b"grace"
    with pytest.raises(KeyError):
        users[b"ada"]
    users.clear()
    assert list(db) == [b"other"]
    with pytest.raises(TypeError):
        users["ada"]


@pytest.mark.parametrize(
    "write",
    [
        lambda view: view.put(b"k", b"v"),
        lambda view: view.delete(b"k"),
        lambda view: view.delete_range(b"a", b"z"),
        lambda view: view.__setitem__(b"k", b"v"),
        lambda view: view.__delitem__(b"k"),
        lambda view: view.clear(),
        lambda view: view.write_batch(),
    ],
)
def test_a_prefix_of_a_snapshot_refuses_a_write_with_a_read_only_error(db, write):
    with pytest.raises(lsmkv.ReadOnlyError, match="snapshot"):
        write(db.prefixed_db(b"a").snapshot())
    with pytest.raises(lsmkv.ReadOnlyError, match="snapshot"):
        write(db.snapshot().prefixed_db(b"\xff"))


def test_a_prefix_without_an_end_can_be_cleared(db):
    db[b"\xfe"] = b"stays"
    last = db.prefixed_db(b"\xff\xff")
    last.clear()
    last[b"\xff" * 65533] = b"1"
    last[b""] = b"2"
    last.clear()
    assert list(db) == [b"\xfe"]


def test_a_snapshot_of_a_prefixed_database_can_be_closed(db):
    users = db.prefixed_db(b"user:")
    users[b"ada"] = b"1"
    with users.snapshot() as frozen:
        users[b"ada"] = b"2"
        assert frozen[b"ada"] == b"1" and not frozen.closed
    assert frozen.closed
    with pytest.raises(lsmkv.ClosedError):
        frozen[b"ada"]


def test_a_batch_below_a_prefix_has_what_a_batch_has(db):
    batch = db.prefixed_db(b"user:").write_batch()
    batch[b"ada"] = b"1"
    batch[b"alan"] = b"2"
    del batch[b"ada"]
    assert len(batch) == 3 and batch.size_bytes > 0
    batch.write(sync=True)
    assert dict(db) == {b"user:alan": b"2"}
    assert db.stats().log.syncs == 1


def test_batches_below_prefixes_can_be_appended(db):
    one, other = (db.prefixed_db(prefix).write_batch() for prefix in (b"a:", b"b:"))
    one.put(b"k", b"1")
    other.put(b"k", b"2")
    one.append(other)
    one.write()
    assert dict(db) == {b"a:k": b"1", b"b:k": b"2"}
    with pytest.raises(TypeError, match="prefix"):
        one.append(db.write_batch())


def test_a_number_is_no_key_below_a_prefix(db):
    """`bytes(5)` is five zeros."""
    with pytest.raises(TypeError):
        db.prefixed_db(b"p").iterator().seek(5)
