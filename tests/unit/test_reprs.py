"""What objects show of themselves, in a shell and in a notebook."""

from html.parser import HTMLParser

import pytest
from databases import fill

import lsmkv


class Cells(HTMLParser):
    """The texts of a page, and whether its tags are balanced."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def texts(thing):
    return Cells(thing._repr_html_()).texts


def test_iterators(db):
    db.put(b"ada", b"")
    assert repr(db.iterator()) == "<lsmkv.Iterator from the first key to the last>"
    assert repr(db.iterator(start=b"a", stop=b"b")) == "<lsmkv.Iterator from b'a' to before b'b'>"
    both = db.iterator(start=b"a", include_start=False, stop=b"b", include_stop=True, reverse=True)
    assert repr(both) == "<lsmkv.Iterator after b'a' to b'b', reversed>"
    assert repr(db.iterator(start=b"k" * 100)) == f"<lsmkv.Iterator from {b'k' * 32}... to the last>"
    it = db.iterator()
    it.close()
    assert repr(it) == "<lsmkv.Iterator (closed)>"
    left = db.iterator(start=b"a")
    db.close()
    assert repr(left) == "<lsmkv.Iterator (closed)>"
    assert repr(lsmkv.Iterator()) == "<lsmkv.Iterator (closed)>"


def test_cursors(db):
    db.put(b"ada", b"")
    cursor = db.cursor(prefix=b"a")
    assert repr(cursor) == "<lsmkv.Cursor from b'a' to before b'b', on no key>"
    cursor.seek_to_first()
    assert repr(cursor) == "<lsmkv.Cursor from b'a' to before b'b', on b'ada'>"
    db.close()
    assert repr(cursor) == "<lsmkv.Cursor (closed)>"


def test_batches(db):
    batch = db.write_batch()
    for i in range(1200):
        batch.put(b"%04d" % i, b"v")
    assert repr(batch) == f"<lsmkv.WriteBatch of 1,200 operations, {batch.size_bytes:,} bytes>"


def test_snapshots_and_transactions(db):
    users = db.keyspace("users")
    db.put(b"ada", b"")
    with db.snapshot() as snapshot, users.snapshot() as other, db.transaction() as tx:
        at = snapshot.sequence
        assert repr(snapshot) == f"<lsmkv.Snapshot of {db.path!r} at {at}>"
        assert repr(other) == f"<lsmkv.Snapshot of 'users' of {db.path!r} at {at}>"
        assert repr(snapshot.keyspace(users)) == repr(other)
        assert repr(tx) == f"<lsmkv.Transaction of {db.path!r} at {at}>"
    assert repr(snapshot) == f"<lsmkv.Snapshot at {at} (closed)>"
    assert repr(tx) == f"<lsmkv.Transaction at {at} (ended)>"


def test_databases_in_notebooks(db):
    users = db.keyspace("users")
    fill(db, 50)
    db.flush()
    assert repr(db) in texts(db) and "50" in texts(db)
    assert repr(users) in texts(users)
    db.close()
    assert texts(db) == [repr(db)] and "(closed)" in repr(db)


def test_traces_in_notebooks(db):
    db.put(b"<ada>", b"")
    db.flush()
    found = texts(db.explain(b"<ada>"))
    assert found[0].startswith("b'<ada>': found in ") and "found" in found[1:]
    assert "absent" in texts(db.explain(b"eve")) or "not found" in texts(db.explain(b"eve"))[0]


def test_plans_in_notebooks():
    plan = lsmkv.plan(1_000_000, bits_per_key=10)
    assert f"L{plan.levels[-1].level}" in texts(plan)
    assert any("wasted reads per lookup" in text for text in texts(plan))


def test_options_in_notebooks(db):
    found = texts(lsmkv.Options(block_size=8192))
    at = found.index("block_size")
    assert found[at + 1 : at + 3] == ["8192", "4096"]


@pytest.mark.parametrize("name", ["__repr__", "_repr_html_"])
def test_statistics_in_notebooks(db, name):
    assert isinstance(getattr(db.stats(), name)(), str)
