"""Tables of version 2: those of named keyspaces say which, and newer versions are refused, not called damaged."""

import struct

import pytest
import xxhash

import lsmkv
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.table.rebuild import rebuild_table_filter
from lsmkv_ext.table.table import Table

FRAME_SEED = 0x6C736D6B76667261
FOOTER = 160


def write(path, **options):
    """A table of one key. Returns its path."""
    with lsmkv.SSTWriter(path / "source.sst") as writer:
        writer.put(b"key", b"value")
    job = Job([Table(path / "source.sst")], directory=path, numbers=FileNumbers(1), **options)
    (meta,) = job.run()["outputs"]
    return path / f"{meta.number:06}.sst"


def version_of(file):
    return struct.unpack_from("<I", file.read_bytes(), file.stat().st_size - FOOTER + 136)[0]


def set_version(file, version):
    data = bytearray(file.read_bytes())
    at = len(data) - FOOTER
    struct.pack_into("<I", data, at + 136, version)
    checked = bytes(data[at + 64 : at + 144])
    struct.pack_into("<Q", data, at + 144, xxhash.xxh3_64_intdigest(checked, seed=FRAME_SEED ^ 5 << 56))
    file.write_bytes(data)


def keyspace_of(file):
    found = Table(file, 1).properties
    return found["version"], found["keyspace_id"], found["keyspace"]


def test_a_table_of_a_named_keyspace_says_which(tmp_path):
    file = write(tmp_path, keyspace=(7, "näme".encode()))
    assert version_of(file) == 2
    assert keyspace_of(file) == (2, 7, "näme")
    assert Table(file, 1).get(b"key") == (b"value", 0)


def property_ids(file):
    """The ids in the properties section, which the caller left uncompressed."""
    data = file.read_bytes()
    at, size = struct.unpack_from("<QQ", data, len(data) - FOOTER + 112)
    ids, rest = [], data[at : at + size - 9]
    while rest:
        ids.append(rest[0])
        rest = rest[2 + rest[1] :]
    return ids


def test_a_table_has_only_the_properties_that_apply_to_it(tmp_path):
    assert property_ids(write(tmp_path, compression=0)) == list(range(1, 22))
    (tmp_path / "named").mkdir()
    assert property_ids(write(tmp_path / "named", compression=0, keyspace=(7, b"name"))) == [*range(1, 22), 27, 28]


def test_a_table_of_the_default_keyspace_keeps_version_1(tmp_path):
    file = write(tmp_path)
    assert version_of(file) == 1
    assert keyspace_of(file) == (1, 0, "")


def test_a_table_made_for_an_ingest_keeps_version_1(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "x.sst") as writer:
        writer.put(b"key", b"value")
    assert version_of(tmp_path / "x.sst") == 1


@pytest.mark.parametrize("keyspace", [(0, b""), (9, b"other")])
def test_a_filter_rebuild_states_the_keyspace_that_it_is_for(tmp_path, keyspace):
    table = Table(write(tmp_path, keyspace=(7, b"name")), 1)
    target = tmp_path / "000002.sst"
    rebuild_table_filter(table, target, millibits=10000, number=2, keyspace=keyspace)
    assert keyspace_of(target)[1:] == (keyspace[0], keyspace[1].decode())


def test_a_newer_version_is_not_damage(tmp_path):
    file = write(tmp_path)
    set_version(file, 3)
    with pytest.raises(lsmkv.FormatError, match="newer format"):
        Table(file, 1)


def test_version_0_is_damage(tmp_path):
    file = write(tmp_path)
    set_version(file, 0)
    with pytest.raises(lsmkv.CorruptionError, match="version"):
        Table(file, 1)


def test_a_table_of_version_1_has_no_keyspace(tmp_path):
    """Its reader skips the properties of version 2, as a release that knows only version 1 does."""
    file = write(tmp_path, keyspace=(7, b"name"))
    set_version(file, 1)
    assert keyspace_of(file) == (1, 0, "")


@pytest.mark.parametrize("keyspace", [(7, b""), (7, b"n" * 256), (7, b"\xff")])
def test_a_name_that_cannot_be_one_is_damage(tmp_path, keyspace):
    file = write(tmp_path, keyspace=keyspace)
    with pytest.raises(lsmkv.CorruptionError, match="keyspace"):
        Table(file, 1)


def test_the_tables_of_a_database_state_their_keyspaces(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path, bits_per_key=10) as db:
        users = db.keyspace("users")
        for mapping in (db, users):
            mapping.put(b"key", b"value")
        db.flush()
        assert sorted(keyspace_of(file) for file in path.glob("*.sst")) == [(1, 0, ""), (2, 1, "users")]
        users.set_options(bits_per_key=14)
        assert users.rebuild_filters() == 1
        users.compact_range()
        assert sorted(keyspace_of(file) for file in path.glob("*.sst")) == [(1, 0, ""), (2, 1, "users")]


def test_a_table_of_another_keyspace_is_ingested_as_any_other(tmp_path):
    """Its own id and name do not count."""
    (tmp_path / "made").mkdir()
    file = write(tmp_path / "made", keyspace=(7, b"name"))
    with lsmkv.open(tmp_path / "db") as db:
        db.keyspace("users").ingest([file])
        assert db.keyspace("users").get(b"key") == b"value"
        assert db.keyspaces() == ["users"]
