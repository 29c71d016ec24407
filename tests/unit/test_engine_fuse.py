"""Fuse filters inside a database: kinds per level, upgrade, rebuild, damage, prefixes, stats, explain."""

import random
import struct

import pytest
from test_engine_filters import SMALL, absent, fill, filter_place, filters_of, key, layered, table_files

import lsmkv
from lsmkv_ext.filter import fuse
from lsmkv_ext.filter.format import describe_filter
from lsmkv_ext.port import codecs
from lsmkv_ext.table.table import Table


@pytest.fixture(autouse=True)
def small_tables_too():
    before = fuse.set_min_keys(100)
    yield
    fuse.set_min_keys(before)
    fuse.fail_next(0)


def kinds(db):
    return {level: {info["kind"] for info in infos} for level, infos in filters_of(db).items()}


def blocks_of(path):
    """The data blocks of a table, and what its filter is."""
    table = Table(str(path), int(path.stem), None, None)
    return path.read_bytes()[: table.properties["data_bytes"]], table.filter_info


def assert_whole(db, n, step=1):
    assert all(db.get(key(i)) is not None for i in range(0, n, step))
    assert list(db.multi_get([key(i) for i in range(0, n, step)])).count(None) == 0
    assert all(db.get(absent(i)) is None for i in range(0, n, 7))
    assert set(db.multi_get([absent(i) for i in range(0, n, 7)])) <= {None}


# --- which tables have one ---


def test_every_table_has_a_fuse_filter(tmp_path):
    with layered(tmp_path / "db", filter="fuse") as db:
        found = filters_of(db)
        assert len(found[0]) == 2 and len(found) >= 2
        for infos in found.values():
            for info in infos:
                assert (info["kind"], info["usable"], info["k"], info["millibits"]) == ("fuse", True, 8, 10_000)
                assert info["designed_fpr"] == 2**-8
                assert info["n_blocks"] == fuse.slots_for(info["n_keys"])
        assert_whole(db, 6000)
    assert lsmkv.verify(tmp_path / "db").findings == []
    for flag in "rw":
        with lsmkv.open(tmp_path / "db", flag, **SMALL) as db:
            assert_whole(db, 6000)


def test_kinds_per_level(tmp_path):
    with layered(tmp_path / "db", filter=["bloom", "fuse"]) as db:
        found = kinds(db)
        assert found.pop(0) == {"bloom"}
        assert set.union(*found.values()) == {"fuse"}
        assert db.filter_debt() == {}


def test_auto_has_fuse_filters_where_tables_live(tmp_path):
    with layered(tmp_path / "db", filter="auto") as db:
        found = kinds(db)
        assert found[0] == {"bloom"}
        assert found[max(found)] == {"fuse"}
        assert db.filter_debt() == {}


def test_small_tables_have_bloom_filters(tmp_path):
    fuse.set_min_keys(20_000)
    with lsmkv.open(tmp_path / "db", filter="fuse") as db:
        fill(db, 0, 19_999)
        db.flush()
        assert kinds(db) == {0: {"bloom"}}
        assert db.filter_debt() == {}
        fill(db, 20_000, 40_000)
        db.flush()
        assert kinds(db)[0] == {"bloom", "fuse"}
        assert db.filter_debt() == {}


@pytest.mark.parametrize(("bits", "kind", "k"), [
    (4, "bloom", 3), (4.5, "fuse", 4), (9, "fuse", 8), (12, "fuse", 10), (13.5, "fuse", 12), (40, "fuse", 16),
])  # fmt: skip
def test_bits_per_key_set_the_width(tmp_path, bits, kind, k):
    with lsmkv.open(tmp_path / "db", **SMALL, filter="fuse", bits_per_key=bits) as db:
        fill(db, 0, 3000)
        db.compact_range()
        for infos in filters_of(db).values():
            assert {(info["kind"], info["k"], info["millibits"]) for info in infos} == {(kind, k, bits * 1000)}
        assert db.filter_debt() == {}
        assert_whole(db, 3000)


def test_a_filter_that_cannot_be_built_is_a_bloom_filter(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL, filter="fuse") as db:
        fill(db, 0, 500)
        fuse.fail_next(3)
        db.flush()
        assert kinds(db) == {0: {"bloom"}}
        assert list(db.filter_debt().values()) == ["kind"]
        assert_whole(db, 500)
        fuse.fail_next(3)
        assert db.rebuild_filters() == 1
        assert kinds(db) == {0: {"bloom"}}
        # Not again and again: only after the next open.
        assert list(db.filter_debt().values()) == ["kind"]
        assert db.rebuild_filters() == 0
    with lsmkv.open(tmp_path / "db", **SMALL, filter="fuse") as db:
        assert db.rebuild_filters() == 1
        assert kinds(db) == {0: {"fuse"}}


def test_the_last_attempt_counts(tmp_path):
    """One in fifty attempts with so few keys fails by itself."""
    found = []
    for i in range(5):
        with lsmkv.open(tmp_path / str(i), **SMALL, filter="fuse") as db:
            fill(db, 0, 500)
            fuse.fail_next(2)
            db.flush()
            found.append(kinds(db))
            assert_whole(db, 500)
    assert {0: {"fuse"}} in found


def test_a_bad_new_filter_is_not_published(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL, filter="fuse", bits_per_key=40) as db:
        fill(db, 0, 500)
        fuse.spoil_next()
        with pytest.raises(lsmkv.CorruptionError, match="denies a key"):
            db.flush()
        db.flush()
        assert_whole(db, 500)


# --- options, format, rebuild ---


def test_wrong_kinds_are_refused(tmp_path):
    for wrong in ("xor", 1, [], ["bloom", None]):
        with pytest.raises(lsmkv.OptionError, match="filter"):
            lsmkv.open(tmp_path / "db", filter=wrong)
    with pytest.raises(ValueError, match="filter"):
        lsmkv.plan(1000, filter="xor")


def test_keyspaces_have_kinds_of_their_own(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        lives = db.keyspace("lives", filter="fuse")
        for i in range(500):
            lives.put(key(i), b"v")
            db.put(key(i), b"v")
        db.flush()
        assert (kinds(db), kinds(lives)) == ({0: {"bloom"}}, {0: {"fuse"}})
        lives.set_options(filter="bloom")
        assert lives.rebuild_filters() == 1
        assert kinds(lives) == {0: {"bloom"}}
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        assert db.keyspace("lives").options.filter == "bloom"


def test_a_live_database_moves_from_kind_to_kind(tmp_path):
    with layered(tmp_path / "db") as db:
        before = {path.name: blocks_of(path) for path in table_files(db) if int(path.stem) in db._versions.tables}
        memory = db.stats().total.filter.memory_bytes
        db.set_options(filter="fuse", bits_per_key=7)
        assert set(db.filter_debt().values()) == {"kind"}
        assert db.rebuild_filters() == len(before)
        assert set.union(*kinds(db).values()) == {"fuse"}
        assert db.filter_debt() == {}
        assert db.stats().total.filter.memory_bytes < memory
        after = [blocks_of(path) for path in table_files(db) if int(path.stem) in db._versions.tables]
        assert sorted(data for data, _ in before.values()) == sorted(data for data, _ in after)
        assert_whole(db, 6000)
        db.set_options(filter="bloom")
        assert db.rebuild_filters() == len(before)
        assert set.union(*kinds(db).values()) == {"bloom"}
        assert_whole(db, 6000)


def test_debt_of_kinds_is_paid_in_the_background(tmp_path):
    with layered(tmp_path / "db") as db:
        db.set_options(filter="fuse", filter_debt_ratio=0.1)
        db._scheduler.wait_idle()
        assert db.filter_debt() == {}
        assert set.union(*kinds(db).values()) == {"fuse"}


def test_the_manifest_knows_the_kind(tmp_path):
    with layered(tmp_path / "db", filter="fuse") as db:
        assert {f.filter_kind for f in db._tree.current.files()} == {2}
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        assert {f.filter_kind for f in db._tree.current.files()} == {2}
        assert {table.meta.filter_kind for table in db._tree.tables()} == {2}


def test_solved_bits_are_met_on_average(tmp_path):
    """Each table has a whole width; together they have the bits asked for."""
    options = {**SMALL, "target_file_size": 16 << 10, "filter": "fuse", "bits_per_key": "auto"}
    with lsmkv.open(tmp_path / "db", **options, filter_memory=30_000) as db:
        fill(db, 0, 30_000, 2)
        db.flush()
        fill(db, 1, 30_000, 2)
        db.compact_range()
        db.rebuild_filters()  # the budget was first split over the tree before the compaction
        (infos,) = [infos for level, infos in filters_of(db).items() if level]
        assert len(infos) > 20
        assert len({info["k"] for info in infos}) == 2
        wanted = sum(info["n_keys"] * info["millibits"] for info in infos) / 8000
        assert sum(info["bytes"] for info in infos) == pytest.approx(wanted, rel=0.05)
        assert db.filter_debt() == {}


# --- damage ---


@pytest.fixture
def one_table(tmp_path):
    fuse.set_min_keys(20)
    with lsmkv.open(tmp_path / "one", **SMALL, filter="fuse", bits_per_key=4.5) as db:
        fill(db, 0, 40)
        db.flush()
        (file,) = table_files(db)
    assert blocks_of(file)[1]["kind"] == "fuse"
    return tmp_path / "one", file


def test_every_flipped_bit_of_header_and_bits_hides_nothing_and_is_counted(one_table):
    path, file = one_table
    header_at, bits_at, n_bits = filter_place(file)
    whole = bytearray(file.read_bytes())
    for at in [*range(header_at, header_at + 64), *range(bits_at, bits_at + n_bits)]:
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            file.write_bytes(damaged)
            with lsmkv.open(path, "r", **SMALL) as db:
                assert all(db.get(key(i)) is not None for i in range(0, 40, 13))
                found = db.stats().total.filter
                assert (found.tables_damaged, found.fail_open, found.checks) == (1, 4, 0)


def resealed(header):
    return header[:56] + struct.pack("<Q", codecs.hash64(bytes(header[:56]), 0x68656164666C7472))


@pytest.mark.parametrize(("at", "value"), [
    (4, 2), (5, 3), (6, 2), (7, 3), (7, 17), (8, 1), (15, 1), (37, 1), (37, 19), (37, 64), (39, 3), (39, 5), (40, 9),
])  # fmt: skip
def test_an_impossible_header_is_not_used(one_table, at, value):
    _, file = one_table
    header, bits = Table(str(file), int(file.stem), None, None).filter_bytes()
    assert describe_filter(header, bits)["usable"]
    forged = bytearray(header)
    assert forged[at] != value
    forged[at] = value
    assert not describe_filter(resealed(bytes(forged)), bits)["usable"]


def test_a_short_or_long_array_is_not_used(one_table):
    _, file = one_table
    header, bits = Table(str(file), int(file.stem), None, None).filter_bytes()
    for wrong in (b"", bits[:-1], bits[:-64], bits + bytes(64)):
        assert not describe_filter(header, wrong)["usable"]


def test_a_fuse_filter_is_no_blocked_bloom(one_table):
    _, file = one_table
    header, bits = Table(str(file), int(file.stem), None, None).filter_bytes()
    with pytest.raises(lsmkv.CorruptionError, match="not a filter"):
        lsmkv.BlockedBloom.from_bytes(header + bits)


def test_a_header_that_passes_for_a_bloom_filter_is_not_used(one_table):
    """The kinds have the same field for blocks and slots."""
    _, file = one_table
    header, bits = Table(str(file), int(file.stem), None, None).filter_bytes()
    forged = bytearray(header)
    forged[5] = 1
    assert not describe_filter(resealed(bytes(forged)), bits)["usable"]


# --- reads ---


@pytest.mark.parametrize("extractor", [3, b"/"])
def test_prefixes_are_in_fuse_filters_too(tmp_path, extractor):
    rng = random.Random(5)
    words = [b"%03d/%06d" % (rng.randrange(0, 1000, 2), i) for i in range(4000)]
    with lsmkv.open(tmp_path / "db", filter="fuse", bits_per_key=18, prefix_extractor=extractor) as db:
        for word in words:
            db.put(word, b"v")
        db.flush()
        assert kinds(db) == {0: {"fuse"}}
        for prefix in range(1000):
            start = b"%03d/" % prefix
            wanted = sorted({word for word in words if word.startswith(start)})
            assert [k for k, _ in db.iterator(prefix=start)] == wanted
        before = db.stats().reads.disk_reads + db.stats().cache.hits
        for prefix in range(1, 1000, 2):
            assert list(db.iterator(prefix=b"%03d/" % prefix)) == []
        assert db.stats().reads.disk_reads + db.stats().cache.hits - before < 10


def test_repeated_prefixes_are_one_entry(tmp_path):
    """Keys without a prefix in between: the builder adds such a prefix twice."""
    with lsmkv.open(tmp_path / "db", **SMALL, filter="fuse", prefix_extractor=b"/") as db:
        for i in range(300):
            db.put(b"a%03d" % i + (b"/x" if i % 2 else b""), b"v")
        db.put(b"k/1", b"v")
        db.put(b"k", b"v")
        db.put(b"k/2", b"v")
        db.flush()
        assert kinds(db) == {0: {"fuse"}}
        assert [k for k, _ in db.iterator(prefix=b"k/")] == [b"k/1", b"k/2"]


def test_a_reader_may_expect_a_hit(tmp_path):
    with layered(tmp_path / "db", filter="fuse") as db:
        for i in range(0, 6000, 6):
            assert db.get(key(i), expect="hit") is not None
        bottom = max(filters_of(db))
        assert db.stats().levels[bottom].filter.unfiltered > 0


def test_tables_of_another_seed_answer_by_their_own(tmp_path):
    with lsmkv.open(tmp_path / "other", **SMALL, filter="fuse") as other:
        fill(other, 0, 500)
        other.flush()
        (file,) = table_files(other)
        seed = other.seed
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        db.ingest([str(file)])
        assert db.seed != seed
        assert kinds(db).popitem()[1] == {"fuse"}
        assert_whole(db, 500)
        assert db.stats().total.filter.negatives > 100


def test_verdicts_are_counted_and_the_rate_is_the_designed_one(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL, filter="fuse", bits_per_key=4.5) as db:
        fill(db, 0, 5000)
        db.flush()
        for i in range(4999):
            assert db.get(absent(i)) is None
        found = db.stats().total.filter
        assert found.checks == found.negatives + found.false_positives == 4999
        assert found.designed_fpr == pytest.approx(1 / 16)
        assert found.observed_fpr == pytest.approx(1 / 16, rel=0.25)
        assert (found.fuse_tables, found.tables) == (1, 1)
        assert found.fuse_bytes == found.memory_bytes == fuse.slots_for(5000) * 4 // 8
        assert 0.3 < found.fill_ratio < 0.6
        assert not db.stats().alarms


def test_explain_names_the_kind(tmp_path):
    with layered(tmp_path / "db", filter=["bloom", "fuse"]) as db:
        steps = [step for step in db.explain(absent(4)).steps if step.source == "table"]
        assert [step.filter_kind for step in steps] == ["bloom", "bloom", "fuse"]
        assert "fuse filter" in str(db.explain(absent(4)))


def test_shadow_reads_check_fuse_filters(tmp_path):
    with layered(tmp_path / "db", filter="fuse", filter_shadow_ratio=1.0) as db:
        for i in range(0, 3000, 7):
            assert db.get(absent(i)) is None
        assert db.stats().shadow.checks > 400
        assert db.stats().shadow.wrong == 0
