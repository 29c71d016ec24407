"""The calls of a mapping on a keyspace change that keyspace and no other."""

import pytest

import lsmkv

CONTENTS = {b"a": b"1", b"b": b"2", b"pa": b"3", b"pb": b"4"}


def write_through_a_batch(space):
    with space.write_batch() as batch:
        batch.put(b"new", b"5")
        batch.delete(b"a")
        batch.delete_range(b"pa", b"pb")


def write_through_a_prefixed_batch(space):
    with space.prefixed_db(b"p").write_batch() as batch:
        batch.put(b"new", b"5")
        batch.delete(b"a")


CHANGES = {
    "put": (lambda s: s.put(b"new", b"5"), {**CONTENTS, b"new": b"5"}),
    "delete": (lambda s: s.delete(b"a"), {b"b": b"2", b"pa": b"3", b"pb": b"4"}),
    "delete_range": (lambda s: s.delete_range(b"a", b"p"), {b"pa": b"3", b"pb": b"4"}),
    "delete_range of a prefix": (
        lambda s: s.prefixed_db(b"p").delete_range(b"a", b"b"),
        {b"a": b"1", b"b": b"2", b"pb": b"4"},
    ),
    "update": (lambda s: s.update({b"a": b"9", b"new": b"5"}), {**CONTENTS, b"a": b"9", b"new": b"5"}),
    "pop": (lambda s: s.pop(b"a"), {b"b": b"2", b"pa": b"3", b"pb": b"4"}),
    "popitem": (lambda s: s.popitem(), None),
    "setdefault": (lambda s: s.setdefault(b"new", b"5"), {**CONTENTS, b"new": b"5"}),
    "clear": (lambda s: s.clear(), {}),
    "clear of a prefix": (lambda s: s.prefixed_db(b"p").clear(), {b"a": b"1", b"b": b"2"}),
    "batch": (write_through_a_batch, {b"b": b"2", b"pb": b"4", b"new": b"5"}),
    "batch of a prefix": (write_through_a_prefixed_batch, {b"a": b"1", b"b": b"2", b"pb": b"4", b"pnew": b"5"}),
}


@pytest.mark.parametrize("changed", ["", "users", "cities"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_call_changes_its_own_keyspace(path, name, changed):
    change, after = CHANGES[name]
    with lsmkv.open(path) as db:
        spaces = {"": db, "users": db.keyspace("users"), "cities": db.keyspace("cities")}
        for space in spaces.values():
            space.update(CONTENTS)
        change(spaces[changed])
        if after is None:
            after = dict(spaces[changed])
            assert len(after) == len(CONTENTS) - 1
        expected = {each: after if each == changed else CONTENTS for each in spaces}
        assert {each: dict(space) for each, space in spaces.items()} == expected
        db._shut(flush=False)
    with lsmkv.open(path) as db:
        found = {each: dict(db.keyspace(each) if each else db) for each in expected}
        assert found == expected
