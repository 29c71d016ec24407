"""The database as a mapping: keys, values, views, limits."""

import pytest
from databases import fill

import lsmkv


def test_mapping_protocol(db):
    db[b"a"] = b"1"
    db.update({b"b": b"2", b"c": b"3"})
    assert db[b"a"] == b"1"
    assert b"b" in db and b"x" not in db
    assert list(db) == [b"a", b"b", b"c"]
    assert list(reversed(db)) == [b"c", b"b", b"a"]
    assert len(db) == 3 and db
    assert db.pop(b"b") == b"2"
    assert db.setdefault(b"d", b"4") == b"4"
    assert db.popitem() == (b"a", b"1")
    with pytest.raises(KeyError):
        db[b"a"]
    with pytest.raises(KeyError):
        del db[b"a"]
    assert db.get(b"a", b"?") == b"?"
    db.clear()
    assert len(db) == 0 and not db
    db.clear()


def test_clear_reaches_the_longest_key(db):
    longest = b"\xff" * 65535
    db[longest] = b"1"
    db[b""] = b"2"
    db.clear()
    assert list(db) == []


def test_a_handle_equals_itself_alone(db, tmp_path):
    with lsmkv.open(tmp_path / "other") as other:
        assert db == db
        assert db != other
        assert db != {}
        assert len({db, other}) == 2


def test_views_are_ordered_and_start_over(db):
    fill(db, 20)
    items = db.items(b"key000005", b"key000008")
    expected = [b"key000005", b"key000006", b"key000007"]
    assert [key for key, _ in items] == expected
    assert [key for key, _ in items] == expected
    assert [key for key, _ in reversed(items)] == expected[::-1]
    assert len(items) == 3
    assert (b"key000005", db[b"key000005"]) in items
    assert (b"key000004", db[b"key000004"]) not in items
    keys = db.keys(prefix=b"key00001")
    assert len(keys) == 10 and b"key000010" in keys and b"key000009" not in keys
    assert keys & {b"key000010", b"zzz"} == {b"key000010"}
    assert db[b"key000003"] in db.values()
    assert list(db.values(b"key000003", b"key000004")) == [db[b"key000003"]]
    assert not db.keys(b"x", b"y")


def test_views_answered_no_for_keys_that_are_not_bytes_themselves(db):
    """`memoryview(b"a") in db` was true and `memoryview(b"a") in db.keys()` false; a bound of 3 was three zeros."""
    db[b"a"] = b"1"
    for key in (bytearray(b"a"), memoryview(b"a")):
        assert key in db and key in db.keys(b"") and (key, b"1") in db.items()
        assert b"a" in db.keys(start=key) and b"a" in db.keys(prefix=key) and b"a" not in db.keys(stop=key)
    for wrong in (3, None):
        with pytest.raises(TypeError):
            assert wrong in db.keys(b"")
    with pytest.raises(TypeError):
        assert b"a" in db.keys(3)


@pytest.mark.parametrize("key", ["text", None, 3, 2.5, ["a"]])
def test_keys_are_bytes(db, key):
    for call in (db.get, db.delete, db.__getitem__, lambda k: db.put(k, b""), lambda k: db.put(b"", k)):
        with pytest.raises(TypeError):
            call(key)


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.get("text"),
        lambda db: "text" in db,
        lambda db: db.put("text", b""),
        lambda db: db.put(b"", "text"),
        lambda db: db.delete("text"),
        lambda db: db.delete_range("text", b"z"),
        lambda db: db.multi_get(["text"]),
        lambda db: db.explain("text"),
        lambda db: list(db.items("text")),
        lambda db: db.cursor().seek("text"),
        lambda db: db.approximate_size("text"),
        lambda db: db.prefixed_db("text"),
        lambda db: "text" in db.keys(b""),
        lambda db: ("text", b"") in db.items(),
        lambda db: b"" in db.keys("text"),
    ],
)
def test_a_text_key_is_told_to_be_encoded(db, call):
    with pytest.raises(TypeError, match="bytes, not str: encode it first"):
        call(db)


def test_bytes_like_keys_and_values(db):
    db.put(bytearray(b"a"), memoryview(b"1"))
    assert db.get(memoryview(b"a")) == b"1"
    assert bytearray(b"a") in db


def test_limits_say_what_is_allowed(db):
    db[b"k" * 65535] = b""
    with pytest.raises(ValueError, match="65535"):
        db[b"k" * 65536] = b""
    with pytest.raises(ValueError, match="65535"):
        db.delete_range(b"", b"k" * 65536)


def test_a_range_that_ends_before_it_starts_deletes_nothing(db):
    fill(db, 3)
    db.delete_range(b"z", b"a")
    db.delete_range(b"key000001", b"key000001")
    with db.write_batch() as batch:
        batch.delete_range(b"z", b"a")
    assert len(db) == 3
