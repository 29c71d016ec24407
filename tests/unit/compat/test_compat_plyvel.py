"""plyvel's interface. `make test-plyvel` runs plyvel's own tests; these need no network."""

from __future__ import annotations

import pytest

import lsmkv
from lsmkv.compat import plyvel


@pytest.fixture
def db(tmp_path):
    with plyvel.DB(str(tmp_path / "db"), create_if_missing=True, error_if_exists=True) as db:
        for key in b"12345":
            db.put(bytes([key]), bytes([key]))
        yield db


def pairs(digits):
    return [(bytes([d]), bytes([d])) for d in digits]


def test_iteration_gives_pairs(db):
    db.put(b"k2", b"v2")  # as a key alone it would unpack into two numbers
    assert list(db) == [*pairs(b"12345"), (b"k2", b"v2")]
    with db.snapshot() as snapshot:
        assert list(snapshot) == list(db)
    assert list(db.prefixed_db(b"k")) == [(b"2", b"v2")]


def test_a_reverse_iterator_has_positions_in_key_order(db):
    it = db.iterator(reverse=True, include_value=False)
    assert [next(it), next(it), it.prev(), it.next()] == [b"5", b"4", b"4", b"4"]
    it.seek_to_start()
    assert next(it, None) is None and it.prev() == b"1"
    it.seek_to_stop()
    assert next(it) == b"5"
    it.seek(b"25")
    assert list(it) == [b"2", b"1"]
    it.close()
    with pytest.raises(RuntimeError):
        next(it)
    bounded = db.iterator(reverse=True, start=b"2", stop=b"4", include_stop=True)
    assert list(bounded) == pairs(b"432")
    assert list(db.prefixed_db(b"").iterator(reverse=True)) == pairs(b"54321")


def test_a_raw_iterator(db):
    it = db.raw_iterator()
    assert not it.valid()
    it.seek(b"25")
    assert (it.valid(), it.key(), it.value(), it.item()) == (True, b"3", b"3", (b"3", b"3"))
    it.seek_to_last()
    it.next()
    with pytest.raises(plyvel.IteratorInvalidError):
        it.key()


def test_a_batch_is_written_unless_it_is_a_transaction(db):
    for transaction, found in [(False, b"kept"), (True, None)]:
        with pytest.raises(ValueError), db.write_batch(transaction=transaction) as batch:
            batch.put(b"key", b"kept")
            assert batch.approximate_size() > 0
            raise ValueError
        assert db.get(b"key") == found
        db.delete(b"key")


def test_options_have_plyvels_names_and_checks(tmp_path):
    path = str(tmp_path / "db")
    with pytest.raises(plyvel.IOError):
        plyvel.DB(path)
    with plyvel.DB(path, create_if_missing=True, lru_cache_size=1 << 20, bloom_filter_bits=12, compression=None) as db:
        options = db.lsmkv.options
        assert (options.block_cache_size, options.bits_per_key, options.compression) == (1 << 20, 12, None)
        assert db.name == path and not db.closed
    assert db.closed
    with pytest.raises(plyvel.Error, match="exists"):
        plyvel.DB(path, error_if_exists=True)
    with pytest.raises(TypeError, match="lru_cache_size"):
        plyvel.DB(path, lru_cache_size="large")
    with pytest.raises(ValueError, match="compression"):
        plyvel.DB(path, compression="lzma")
    with pytest.raises(ValueError, match="no comparators"):
        plyvel.DB(path, comparator=lambda a, b: 0, comparator_name=b"none")


def test_properties_and_sizes(db):
    assert db.get_property(b"leveldb.num-files-at-level0") == b"0"
    assert db.get_property(b"rocksdb.stats") is db.get_property(b"leveldb.nothing") is None
    db.compact_range(start=b"1")
    assert db.approximate_sizes() == []
    assert db.approximate_sizes((b"1", b"6"), (b"7", b"8")) == [db.approximate_size(b"1", b"6"), 0]


def test_repair_and_destroy(tmp_path):
    path = str(tmp_path / "db")
    with plyvel.DB(path, create_if_missing=True) as db:
        db.put(b"a", b"1")
    (tmp_path / "db" / "CURRENT").unlink()
    plyvel.repair_db(path)
    with lsmkv.open(path) as again:
        assert again[b"a"] == b"1"
    plyvel.destroy_db(path)
    assert not (tmp_path / "db").exists()
