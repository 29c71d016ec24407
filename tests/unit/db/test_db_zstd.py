"""Databases with zstd: per level, per keyspace, for large values; the upgrade that it asks for; and no zstd at all."""

import shutil
from pathlib import Path

import pytest
from databases import TINY, fill, keep_still

import lsmkv
from lsmkv.recovery.stored_state import read_state
from lsmkv_ext.port import zstd
from lsmkv_ext.table.table import Table
from lsmkv_ext.values.reader import decode_pointer

NO_COMPACTION = {"l0_compaction_trigger": 100, "l0_slowdown_trigger": 200, "l0_stop_trigger": 300}
FORMAT_1 = Path(__file__).parents[2] / "golden" / "format-1"


@pytest.fixture(autouse=True)
def c_path_again():
    yield
    zstd.use("c")


@pytest.fixture
def old(tmp_path):
    return shutil.copytree(FORMAT_1, tmp_path / "old")


def codecs(db):
    """The codecs of the tables, by level."""
    return [{table.properties["compression"] for table in tables} for tables in db._tree.table_levels()]


def records(n):
    """Bytes that shrink to about a fifth."""
    return b"".join(b'{"name": "name %d", "number": %d}, ' % (i * 7919 % 1000, i * i) for i in range(n))


def rows(n=500):
    return {b"key%06d" % i: (b"%06d" % i) * 16 for i in range(n)}


def test_a_codec_for_each_level(tmp_path):
    with lsmkv.open(tmp_path / "db", **TINY, compression=[None, "lz4", "zstd"]) as db:
        fill(db, 3000)
        db.flush()
        db.compact_range()
        fill(db, 60)
        keep_still(db)
        db.flush()
        # By the level that a table was written for: a new L1 pushes the others down as they are.
        found = {(t.properties["level"], t.properties["compression"]) for t in db._tree.tables()}
        assert found <= {(0, None), (1, "lz4"), *((level, "zstd") for level in range(2, 7))}
        assert "zstd" in {codec for _, codec in found}
        assert dict(db.items()) == rows(3000)
    assert lsmkv.verify(tmp_path / "db", deep=True).findings == []


def test_a_table_is_not_moved_to_a_level_with_another_codec(tmp_path):
    with lsmkv.open(tmp_path / "db", compression=["lz4", "zstd"]) as db:
        fill(db)
        db.compact_range()
        assert codecs(db)[0] == set() and {"zstd"} in codecs(db)
        assert dict(db.items()) == rows()


def test_codecs_change_on_an_open_database(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        keep_still(db)
        for i, codec in enumerate(("lz4", "zstd", None, "zstd")):
            db.set_options(compression=codec)
            db.put(b"key%d" % i, b"text " * 1000)
            db.flush()
        assert codecs(db)[0] == {"lz4", "zstd", None}
        assert {key: db.get(key) for key in db} == {b"key%d" % i: b"text " * 1000 for i in range(4)}
    with lsmkv.open(tmp_path / "db", "r") as db:
        assert db.get(b"key1") == db.get(b"key3") == b"text " * 1000


def test_a_keyspace_has_its_own_codec(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        texts = db.keyspace("texts", compression="zstd")
        for mapping in (db, texts):
            fill(mapping)
        db.flush()
        assert codecs(db)[0] == {"lz4"} and codecs(texts)[0] == {"zstd"}
    with lsmkv.open(tmp_path / "db") as db:
        texts = db.keyspace("texts")
        assert dict(texts.items()) == rows()
        texts.set_options(compression="lz4")
        fill(texts)
        texts.compact_range()
        assert {"lz4"} in codecs(texts) and {"zstd"} not in codecs(texts)


def test_large_values(tmp_path):
    value = records(9000)
    with lsmkv.open(tmp_path / "db", large_value_compression="zstd") as db:
        db.put(b"large", value)
        db.put(b"zeros", bytes(1 << 20))  # beyond the bound of zstd
        with open(tmp_path / "value", "wb+") as file:
            file.write(value * 8)
            file.seek(0)
            db.put(b"streamed", file, length=len(value) * 8)
        db.flush()
        pointers = {key: decode_pointer(p) for t in db._versions.tables.values() for key, p in t.pointers()}
        assert {key: pointer[4] for key, pointer in pointers.items()} == {b"large": 2, b"zeros": 1, b"streamed": 2}
        assert pointers[b"large"][2] < len(value) / 4
        for _ in range(2):
            assert db.get(b"large") == bytes(db.get(b"large", copy=False)) == value
            assert db.get(b"zeros") == bytes(1 << 20) and db.get(b"streamed") == value * 8
            with db.open_value(b"streamed") as file:
                file.seek(100_000)
                assert file.read(1000) == (value * 8)[100_000:101_000]
            db.set_options(value_gc_ratio=1.1)
            db.compact_range()
    assert lsmkv.verify(tmp_path / "db", deep=True).findings == []


def test_zstd_upgrades_a_database_of_format_1(old):
    with lsmkv.open(old) as db:
        contents = dict(db.items())
    assert read_state(str(old)).format_version == 1
    with lsmkv.open(old, "r", compression="zstd") as db:
        assert dict(db.items()) == contents
    assert read_state(str(old)).format_version == 1
    with lsmkv.open(old, compression=["lz4", "zstd"]) as db:
        db.compact_range()
        assert {"zstd"} in codecs(db) and dict(db.items()) == contents
    assert read_state(str(old)).format_version == 2
    assert lsmkv.verify(old, deep=True).findings == []


@pytest.mark.parametrize("changes", [{"compression": "zstd"}, {"large_value_compression": "zstd"}])
def test_set_options_upgrades_too(old, changes):
    with lsmkv.open(old) as db:
        db.set_options(compression="lz4")
        assert read_state(str(old)).format_version == 1
        db.set_options(**changes)
        assert read_state(str(old)).format_version == 2


def test_writes_in_the_log_of_format_1_survive_the_upgrade(old):
    with lsmkv.open(old) as db:
        fill(db)
        contents = dict(db.items())
        db.sync()
        db._shut(flush=False)
    with lsmkv.open(old, compression="zstd", **NO_COMPACTION) as db:
        assert db.recovery_report.tables == 1
        replayed = db._versions.tables[db._tree.current.levels[0][0].number]
        # It is older than the upgrade.
        assert (replayed.properties["compression"], replayed.properties["version"]) == ("lz4", 1)
        assert dict(db.items()) == contents
        fill(db, 10, prefix=b"more")
    with lsmkv.open(old, "r") as db:
        assert len(dict(db.items())) == len(contents) + 10


def test_an_ingested_table_upgrades(old, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "x.sst", compression="zstd") as writer:
        writer.put(b"new", b"text " * 500)
    with lsmkv.open(old) as db:
        db.ingest([tmp_path / "x.sst"])
        assert db[b"new"] == b"text " * 500
    assert read_state(str(old)).format_version == 2


def test_an_ingested_table_with_a_value_log(old, tmp_path):
    value = records(3000)
    with lsmkv.SSTWriter(tmp_path / "x.sst", large_value_threshold=4000, large_value_compression="zstd") as writer:
        writer.put(b"large", value)
    assert (tmp_path / "x.vlog").stat().st_size < len(value) / 4
    with lsmkv.open(old) as db:
        db.ingest([tmp_path / "x.sst"])
        assert db[b"large"] == value
    zstd.use("missing")
    with pytest.raises(lsmkv.FormatError, match="zstd"):
        lsmkv.SSTWriter(tmp_path / "y.sst", large_value_threshold=4000, large_value_compression="zstd")
    assert not (tmp_path / "y.sst").exists() and not (tmp_path / "y.vlog").exists()


def test_a_filter_rebuild(tmp_path):
    with lsmkv.open(tmp_path / "db", compression="zstd") as db:
        fill(db)
        db.flush()
        db.set_options(bits_per_key=14)
        assert db.rebuild_filters() == 1
        assert codecs(db)[0] == {"zstd"} and dict(db.items()) == rows()


def test_repair_without_a_manifest(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path, compression="zstd") as db:
        fill(db)
    for manifest in path.glob("MANIFEST-*"):
        manifest.unlink()
    assert lsmkv.repair(path).losses == []
    with lsmkv.open(path) as db:
        assert dict(db.items()) == rows()
    assert read_state(str(path)).format_version == 2


# Without zstd -----------------------------------------------------------------------------------------------------


@pytest.fixture
def compressed(tmp_path):
    """A database with tables and a large value compressed with zstd."""
    with lsmkv.open(tmp_path / "db", compression="zstd", large_value_compression="zstd") as db:
        fill(db)
        db.put(b"large", records(900))
    return tmp_path / "db"


def files(path):
    return {p.name: p.read_bytes() for p in path.iterdir() if p.name not in ("LOCK", "OPTIONS")}


def refused_unchanged(path, call):
    before = files(path)
    zstd.use("missing")
    with pytest.raises(lsmkv.FormatError, match="zstd is needed"):
        call(path)
    assert files(path) == before
    zstd.use("c")


@pytest.mark.parametrize("call", [lsmkv.open, lambda path: lsmkv.open(path, "r"), lsmkv.verify, lsmkv.repair])
def test_a_missing_zstd_is_named_and_nothing_changes(compressed, call):
    refused_unchanged(compressed, call)
    with lsmkv.open(compressed) as db:
        assert len(dict(db.items())) == 501


def test_without_zstd_a_repair_rebuilds_nothing(compressed):
    for file in [*compressed.glob("MANIFEST-*"), compressed / "CURRENT"]:
        file.unlink()
    refused_unchanged(compressed, lsmkv.repair)
    assert lsmkv.repair(compressed).losses == []
    with lsmkv.open(compressed) as db:
        assert len(dict(db.items())) == 501


def test_options_that_need_a_missing_zstd_are_refused(tmp_path, old):
    zstd.use("missing")
    for given in ({"compression": "zstd"}, {"compression": ["lz4", "zstd"]}, {"large_value_compression": "zstd"}):
        with pytest.raises(lsmkv.FormatError, match="zstd"):
            lsmkv.open(tmp_path / "new", **given)
        assert not list((tmp_path / "new").glob("MANIFEST-*"))
        with pytest.raises(lsmkv.FormatError, match="zstd"):
            lsmkv.open(old, **given)
        with lsmkv.open(old) as db:
            with pytest.raises(lsmkv.FormatError, match="zstd"):
                db.set_options(**given)
            assert db.options.compression == "lz4"
        assert read_state(str(old)).format_version == 1
    with lsmkv.open(tmp_path / "db") as db:
        with pytest.raises(lsmkv.FormatError, match="zstd"):
            db.keyspace("texts", compression="zstd")
        assert db.keyspaces() == []
        with pytest.raises(lsmkv.FormatError, match="zstd"):
            db.keyspace("others").set_options(compression="zstd")


def test_a_large_value_without_zstd(tmp_path):
    """Its table needs none, so the database opens."""
    path = tmp_path / "db"
    with lsmkv.open(path, large_value_compression="zstd") as db:
        db.put(b"large", records(900))
        db.put(b"small", b"small")
    zstd.use("missing")
    with lsmkv.open(path) as db:
        for read in (db.get, lambda key: db.get(key, copy=False), lambda key: db.open_value(key).read()):
            with pytest.raises(lsmkv.FormatError, match="zstd is needed"):
                read(b"large")
        with pytest.raises(lsmkv.FormatError, match="zstd is needed"):
            list(db.items())
        assert db.get(b"small") == b"small"
        db.compact_range()  # copies values as they are
    zstd.use("c")
    with lsmkv.open(path) as db:
        assert db.get(b"large") == records(900)


def test_a_keyspace_that_needs_a_missing_zstd_refuses_the_open(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        db.keyspace("texts", compression="zstd")
    zstd.use("missing")
    with pytest.raises(lsmkv.FormatError, match="zstd is needed"):
        lsmkv.open(path)
    with lsmkv.open(path, "r") as db:
        assert db.keyspaces() == ["texts"]


def test_an_ingest_without_zstd(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "x.sst", compression="zstd") as writer:
        writer.put(b"new", b"text " * 500)
    assert Table(tmp_path / "x.sst").properties["compression"] == "zstd"
    zstd.use("missing")
    with lsmkv.open(tmp_path / "db") as db:
        with pytest.raises(lsmkv.FormatError, match="zstd"):
            db.ingest([tmp_path / "x.sst"])
        assert dict(db) == {}
