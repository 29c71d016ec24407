"""Filters inside a database: bits per level, fail open, debt and rebuild, prefixes, stats, explain."""

import logging
import random
import struct
from pathlib import Path

import pytest
from tables import seal

import lsmkv
from lsmkv.filters.planner import designed_fpr
from lsmkv.recovery import open_writer
from lsmkv.version.manifest import LATEST_FORMAT
from lsmkv_ext.filter.kernel import spoil_next
from lsmkv_ext.port import codecs
from lsmkv_ext.table.rebuild import rebuild_table_filter
from lsmkv_ext.table.table import Table

HEADER_SEED = 0x68656164666C7472  # of the checksum of a filter's header

SMALL = {
    "write_buffer_size": 64 << 10,
    "target_file_size": 64 << 10,
    "max_background_jobs": 1,
    "compression": None,
}


def key(i):
    return b"key%08d" % i


def absent(i):
    """Between the keys, so inside the range of every table."""
    return b"key%08dx" % i


def fill(db, start, stop, step=1, size=40):
    with db.write_batch() as batch:
        for i in range(start, stop, step):
            batch.put(key(i), b"%d" % i * (size // len(b"%d" % i)))


def layered(path, **options):
    """A merged level below two runs in L0, all over the same range; each holds a third of the keys."""
    db = lsmkv.open(path, **(SMALL | {"l0_compaction_trigger": 20} | options))
    fill(db, 0, 6000, 6)
    db.flush()
    fill(db, 3, 6000, 6)  # two runs to merge: a single one would just move down, with the filter it has
    db.compact_range()
    fill(db, 1, 6000, 3)
    db.flush()
    fill(db, 2, 6000, 3)
    db.flush()
    return db


def table_files(db):
    return sorted(Path(db.path).glob("*.sst"))


def compacted(path, n):
    """Makes and closes a database of n keys: the file of its only table, and its seed."""
    with lsmkv.open(path, **SMALL) as db:
        fill(db, 0, n)
        db.compact_range()
        (file,) = table_files(db)
        return file, db.seed


def filters_of(db):
    """level -> filter_info of its tables."""
    found = {}
    for level, tables in enumerate(db._tree.table_levels()):
        for table in tables:
            found.setdefault(level, []).append(table.filter_info)
    return found


def filter_place(path):
    """(offset of the header, offset and size of the bits) in a table file, found by content."""
    table = Table(str(path), int(path.stem), None, None)
    header, bits = table.filter_bytes()
    data = path.read_bytes()
    assert data.count(header) == 1 and data.count(bits) == 1
    return data.index(header), data.index(bits), len(bits)


# --- every table has its filter ---


def test_each_table_carries_a_filter_of_the_databases_seed(tmp_path):
    with layered(tmp_path / "db") as db:
        levels = filters_of(db)
        assert len(levels) >= 2 and len(levels[0]) == 2
        for infos in levels.values():
            for info in infos:
                assert info["usable"] and info["millibits"] == 10_000 and info["k"] == 6
                assert info["seed"] == db.seed
                assert 0.35 < info["fill_ratio"] < 0.5
        seed = db.seed
    with lsmkv.open(tmp_path / "db", **SMALL) as again:
        assert again.seed == seed
    with lsmkv.open(tmp_path / "other", **SMALL) as other:
        assert other.seed != seed


def test_filters_stand_on_cache_lines_in_the_file(tmp_path):
    with layered(tmp_path / "db") as db:
        files = [path for path in table_files(db) if int(path.stem) in db._versions.tables]
        places = [filter_place(path) for path in files]
    assert len(places) >= 3
    assert all(bits_at % 64 == bits_size % 64 == 0 and bits_size for _, bits_at, bits_size in places)


def test_new_filters_are_checked_unless_told_otherwise(tmp_path):
    for checked in (True, False):
        with layered(tmp_path / str(checked), verify_filters=checked) as db:
            assert db.background.filter_build_ns > 0
            assert (db.background.filter_verify_ns > 0) == checked
            before = db.background.filter_verify_ns
            db.set_options(bits_per_key=12)
            assert db.rebuild_filters() > 0
            assert (db.background.filter_verify_ns > before) == checked


def test_a_bad_new_filter_keeps_its_table_from_being_finished(tmp_path):
    path = tmp_path / "t.sst"
    spoil_next()
    with pytest.raises(lsmkv.CorruptionError, match="denies a key"), lsmkv.SSTWriter(path) as writer:
        writer.put(b"key", b"value")
    assert not path.exists()


def test_a_bad_new_filter_is_not_published_by_a_flush(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        fill(db, 0, 100)
        spoil_next()
        with pytest.raises(lsmkv.CorruptionError, match="denies a key"):
            db.flush()
        assert all(db.get(key(i)) for i in range(100))
        db.flush()
        assert len(db._versions.tables) == 1
        assert all(db.get(key(i)) for i in range(100))
    assert lsmkv.verify(tmp_path / "db").ok


def test_a_bad_new_filter_is_not_published_by_a_compaction(tmp_path):
    with layered(tmp_path / "db") as db:
        before = sorted(db._versions.tables)
        spoil_next()
        with pytest.raises(lsmkv.CorruptionError, match="denies a key"):
            db.compact_range()
        assert sorted(db._versions.tables) == before
        assert len(db) == 6000
        db.compact_range()
        assert all(db.get(key(i)) for i in range(6000))
    assert lsmkv.verify(tmp_path / "db").ok


def test_a_bad_new_filter_is_not_published_by_a_rebuild_nor_blamed_on_the_table(tmp_path):
    with layered(tmp_path / "db") as db:
        before = sorted(db._versions.tables)
        db.set_options(bits_per_key=12)
        spoil_next()
        with pytest.raises(lsmkv.CorruptionError, match="denies a key"):
            db.rebuild_filters()
        assert not db._work.claims.damaged
        assert all(db.get(key(i)) for i in range(6000))
        assert db.rebuild_filters() > 0
        assert not set(before) & set(db._versions.tables)
        db.compact_range()
        assert all(db.get(key(i)) for i in range(6000))
    assert lsmkv.verify(tmp_path / "db").ok


def test_an_unchecked_bad_filter_hides_a_key(tmp_path):
    """What `verify_filters=False` risks, and that `verify` finds it."""
    with lsmkv.open(tmp_path / "db", verify_filters=False, **SMALL) as db:
        fill(db, 0, 100)
        spoil_next()
        db.flush()
        assert db.get(key(99)) is None
    assert any("filter" in finding.what for finding in lsmkv.verify(tmp_path / "db").findings)


def test_duplicates_and_dropped_keys_do_not_count(tmp_path):
    with lsmkv.open(tmp_path / "db", **(SMALL | {"write_buffer_size": 1 << 20})) as db:
        for _ in range(3):
            fill(db, 0, 500)
        db.flush()
        (info,) = filters_of(db)[0]
        assert info["n_keys"] == 500
        for i in range(0, 500, 2):
            db.delete(key(i))
        db.compact_range()
        (infos,) = filters_of(db).values()
        assert sum(info["n_keys"] for info in infos) == 250


def test_bits_per_level_from_a_list(tmp_path):
    with layered(tmp_path / "db", bits_per_key=[16, 5]) as db:
        levels = filters_of(db)
        assert {info["millibits"] for info in levels.pop(0)} == {16_000}
        for infos in levels.values():
            assert {info["millibits"] for info in infos} == {5_000}


def test_zero_bits_build_none(tmp_path):
    with layered(tmp_path / "db", bits_per_key=0) as db:
        assert all(info["problem"] == "absent" for infos in filters_of(db).values() for info in infos)
        assert all(db.get(key(i)) is not None for i in range(0, 6000, 7))
        assert db.get(absent(5)) is None
        total = db.stats().total.filter
        assert total.checks == 0 and total.unfiltered > 0 and total.fail_open == 0
        assert not db.stats().alarms


def test_auto_gives_the_upper_levels_more(tmp_path):
    with layered(tmp_path / "db", bits_per_key="auto", write_buffer_size=1 << 20) as db:
        db.compact_range()
        fill(db, 1, 6000, 12)
        db.flush()
        upper = filters_of(db)[0][0]["millibits"]
        lower = {info["millibits"] for level, infos in filters_of(db).items() if level for info in infos}
        assert upper > max(lower) > 3_000


def test_a_moved_table_keeps_its_filter_and_that_is_debt(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL, bits_per_key=[16, 5]) as db:
        fill(db, 0, 500)
        db.compact_range()
        assert list(db.filter_debt().values()) == ["bits"]
        assert db.stats().total.filter.debt_bytes == db.stats().total.filter.memory_bytes
        db.rebuild_filters()
        assert db.filter_debt() == {}
        assert [info["millibits"] for infos in filters_of(db).values() for info in infos] == [5_000]


def test_target_rate(tmp_path):
    with layered(tmp_path / "db", target_fpr=0.001) as db:
        for infos in filters_of(db).values():
            for info in infos:
                assert designed_fpr(info["millibits"] / 1000) <= 0.001


# --- verdicts and what they are worth ---


def test_verdicts_are_counted_exactly(tmp_path):
    with layered(tmp_path / "db") as db:
        db.reset_stats()
        for i in range(2000):
            assert db.get(absent(i)) is None
        total = db.stats().total.filter
        assert total.checks == total.lookups == total.negatives + total.positives
        assert total.positives == total.false_positives and total.true_positives == 0
        assert total.lookups == pytest.approx(2000 * 3, rel=0.02)
        assert total.blocks_skipped == total.negatives
        assert total.designed_fpr == pytest.approx(designed_fpr(10), rel=0.1)
        # A 95 % bound misses the truth once in twenty seeds; twice or half the rate would be six deviations off.
        assert total.designed_fpr / 2 < total.observed_fpr < total.designed_fpr * 2
        assert total.observed_fpr_low <= total.observed_fpr <= total.observed_fpr_high
        assert total.sampled == pytest.approx(total.negatives / 256, abs=4)
        assert total.bytes_skipped == pytest.approx(total.negatives * 4096, rel=0.2)


def test_time_saved_comes_from_the_measured_cost_of_a_block(tmp_path):
    with layered(tmp_path / "db") as db:
        assert all(value is not None for value in db.multi_get([key(i) for i in range(6000)]))
        db.reset_stats()
        for start in range(0, 24_000, 20):  # small batches: the sampling goes on from one to the next
            db.multi_get([absent(i % 6000) for i in range(start, start + 20)])
        counters = db._engine.counters(db._live)
        stats = db.stats()
        total = stats.total.filter
        assert total.sampled == pytest.approx(total.blocks_skipped / 256, abs=3)
        assert total.blocks_skipped_cache == pytest.approx(total.blocks_skipped, rel=0.01)
        assert counters["cache_timed"] == pytest.approx(total.sampled / 4, abs=4)
        each = counters["cache_timed_ns"] / counters["cache_timed"]
        assert total.seconds_saved == pytest.approx(total.blocks_skipped_cache * each / 1e9, rel=0.01)
        assert stats.reads.gets * 3 >= total.lookups, "the timed searches are no lookups"
        assert stats.cache.hits + stats.reads.disk_reads <= total.positives + total.unfiltered


def test_present_keys_are_true_positives_at_their_level(tmp_path):
    with layered(tmp_path / "db") as db:
        db.reset_stats()
        for i in range(0, 6000, 3):
            assert db.get(key(i)) is not None
        stats = db.stats()
        bottom = [level for level in stats.levels if level.filter.true_positives]
        assert len(bottom) == 1 and bottom[0].level > 0
        assert bottom[0].filter.true_positives == 2000
        assert stats.reads.gets == stats.reads.found == 2000
        wasted = stats.total.filter.negatives + stats.total.filter.false_positives
        assert wasted == pytest.approx(4000, abs=40)


def test_batches_count_like_single_reads(tmp_path):
    with layered(tmp_path / "db") as db:
        asked = [key(i) for i in range(0, 6000, 5)] + [absent(i) for i in range(0, 6000, 5)]
        db.reset_stats()
        singles = [db.get(k) for k in asked]
        one = db.stats().total.filter
        db.reset_stats()
        assert db.multi_get(asked) == singles
        many = db.stats().total.filter
        for name in ("lookups", "checks", "negatives", "positives", "true_positives"):
            assert getattr(one, name) == getattr(many, name), name
        assert one.false_positives == many.remembered + many.false_positives
        assert many.remembered > 0


def test_memory_and_fill_are_shown(tmp_path):
    with layered(tmp_path / "db") as db:
        total = db.stats().total.filter
        assert total.memory_bytes == sum(i["bytes"] for infos in filters_of(db).values() for i in infos)
        assert total.keys == 6000
        assert 0.35 < total.fill_ratio < 0.5
        assert total.memory_bytes == pytest.approx(6000 * 10 / 8, rel=0.1)


# --- fail open ---


def flip(path, bit, data):
    damaged = bytearray(data)
    damaged[bit >> 3] ^= 1 << (bit & 7)
    path.write_bytes(damaged)


@pytest.fixture(scope="module")
def one_table(tmp_path_factory):
    """A closed database of one table, its file's bytes, and the keys it holds."""
    path = tmp_path_factory.mktemp("flip") / "db"
    file, _ = compacted(path, 90)
    return path, file, file.read_bytes(), [key(i) for i in range(90)]


def read_all(path, keys):
    """Every key through a fresh handle; the statistics and whether damage was seen."""
    with lsmkv.open(path, flag="r", **SMALL) as db:
        assert all(value is not None for value in db.multi_get(keys))
        assert db.get(keys[0]) is not None
        return db.stats()


def test_every_flipped_bit_of_header_and_bits_hides_nothing_and_is_counted(one_table):
    path, file, data, keys = one_table
    header_at, bits_at, bits_size = filter_place(file)
    places = [*range(8 * header_at, 8 * (header_at + 64)), *range(8 * bits_at, 8 * (bits_at + bits_size))]
    healthy = read_all(path, keys).total.filter
    assert healthy.checks == len(keys) + 1 and healthy.fail_open == healthy.tables_damaged == 0
    try:
        for bit in places:
            flip(file, bit, data)
            stats = read_all(path, keys)
            total = stats.total.filter
            assert total.tables_damaged == 1, bit
            assert total.fail_open == len(keys) + 1 and total.checks == 0, bit
            assert [alarm.name for alarm in stats.alarms] == ["filter_damaged"], bit
    finally:
        file.write_bytes(data)


def test_damage_is_logged_with_the_file(one_table, caplog):
    path, file, data, keys = one_table
    _, bits_at, _ = filter_place(file)
    try:
        flip(file, 8 * bits_at, data)
        with caplog.at_level(logging.WARNING, logger="lsmkv"):
            read_all(path, keys)
    finally:
        file.write_bytes(data)
    said = [record.getMessage() for record in caplog.records]
    assert any(file.name in message and "filter" in message for message in said)


def test_damaged_filter_is_debt_and_rebuild_heals_it(tmp_path):
    path = tmp_path / "db"
    file, _ = compacted(path, 300)
    _, bits_at, _ = filter_place(file)
    flip(file, 8 * bits_at + 3, file.read_bytes())
    with lsmkv.open(path, **SMALL) as db:
        assert list(db.filter_debt().values()) == ["damaged"]
        assert db.stats().total.filter.debt_tables == 1
        assert db.rebuild_filters() == 1
        assert db.filter_debt() == {}
        total = db.stats().total.filter
        assert (total.tables, total.tables_damaged) == (1, 0)
        assert all(db.get(key(i)) is not None for i in range(300))


# --- optimize for hits ---


def test_for_hits_leaves_the_bottom_without_and_gives_memory_back(tmp_path):
    with layered(tmp_path / "plain") as db:
        full = db.stats().total.filter.memory_bytes
        bottom_full = max(level.filter.memory_bytes for level in db.stats().levels[1:])
    with layered(tmp_path / "hits", optimize_filters_for_hits=True) as db:
        stats = db.stats()
        assert stats.levels[0].filter.tables == 2, "flushes keep their filters"
        assert stats.total.filter.memory_bytes == full - bottom_full
        assert stats.total.filter.tables_without > 0
        assert all(db.get(key(i)) is not None for i in range(6000))
        assert db.filter_debt() == {}


def test_switching_to_for_hits_is_debt_paid_by_rebuilding(tmp_path):
    with layered(tmp_path / "db") as db:
        before = db.stats().total.filter.memory_bytes
        db.set_options(optimize_filters_for_hits=True)
        assert set(db.filter_debt().values()) == {"unwanted"}
        db.rebuild_filters()
        assert db.stats().total.filter.memory_bytes < before
        assert db.filter_debt() == {}
        assert all(db.get(key(i)) is not None for i in range(6000))


def test_a_reader_may_say_what_it_expects(tmp_path):
    with layered(tmp_path / "db", row_cache_size=0) as db:
        for hint in ("hit", None):
            assert db.get(key(3), expect=hint) is not None
            assert db.get(absent(3), expect=hint) is None
        for hint in ("miss", "", 1):
            with pytest.raises(ValueError, match="expect must be"):
                db.get(key(3), expect=hint)
        db.reset_stats()
        db.get(key(3), expect="hit")
        bottom = [level.filter for level in db.stats().levels if level.filter.unfiltered]
        assert len(bottom) == 1 and bottom[0].checks == 0


# --- rebuild ---


def data_part(path):
    """The bytes of the data blocks: the file up to its index."""
    table = Table(str(path), int(path.stem), None, None)
    layout = table.block_layout()
    end = max(block["offset"] + block["size"] for block in layout)
    return path.read_bytes()[:end]


def test_rebuild_changes_the_filter_and_not_one_data_byte(tmp_path):
    with layered(tmp_path / "db", bits_per_key=6) as db:
        before = [data_part(path) for path in table_files(db)]
        contents = list(db.items())
        db.set_options(bits_per_key=12)
        assert set(db.filter_debt().values()) == {"bits"}
        rebuilt = db.rebuild_filters()
        assert rebuilt == len(before)
        assert {i["millibits"] for infos in filters_of(db).values() for i in infos} == {12_000}
        db._versions.collect_garbage()
        after = [data_part(path) for path in table_files(db) if int(path.stem) in db._versions.tables]
        assert sorted(after) == sorted(before)
        assert list(db.items()) == contents
        assert db.stats().compaction.filter_rebuilds == rebuilt
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        assert list(db.items()) == contents


def test_no_block_is_opened_where_no_filter_is_wanted(tmp_path):
    """A block with a correct checksum that cannot be decompressed is copied: the rebuild does not look into it."""
    path, out = tmp_path / "t.sst", tmp_path / "out.sst"
    with lsmkv.SSTWriter(path) as writer:
        for i in range(300):
            writer.put(key(i), b"value" * 20)
    data = bytearray(path.read_bytes())
    table = Table(str(path), 1)
    block = table.block_layout()[3]
    assert block["compression"] == "lz4"
    at, size = block["offset"], block["size"]
    data[at : at + size] = seal(b"\xff" * (size - 9), block["raw_size"], 1, 1, at)
    path.write_bytes(data)
    table = Table(str(path), 1)
    with pytest.raises(lsmkv.CorruptionError):
        rebuild_table_filter(table, out, millibits=10_000)
    rebuild_table_filter(table, out, millibits=0)
    data_bytes = table.properties["data_bytes"]
    assert out.read_bytes()[:data_bytes] == data[:data_bytes]
    copy = Table(str(out), 2)
    assert copy.filter_info["problem"] == "absent"
    assert copy.separators() == table.separators()
    same = ("n_entries", "n_deletes", "min_seq", "max_seq", "smallest", "largest", "key_bytes", "value_bytes")
    assert {k: copy.properties[k] for k in same} == {k: table.properties[k] for k in same}


def test_a_rebuilt_ingested_table_keeps_its_entries_above_its_range_tombstones(tmp_path):
    """They were written with the number of the ingest: verify called that damage, and a repair without a manifest
    believed it.
    """
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        with lsmkv.SSTWriter(tmp_path / "new.sst", seed=db.seed) as table:
            table.put(b"b", b"new")
            table.delete_range(b"a", b"c")
        db[b"z"] = b"1"
        db.ingest([tmp_path / "new.sst"])
        contents = dict(db.items())
        db.set_options(bits_per_key=20)
        assert db.rebuild_filters() == 2
        assert dict(db.items()) == contents
    assert lsmkv.verify(path).findings == []
    for name in ["CURRENT", *(p.name for p in path.glob("MANIFEST-*"))]:
        (path / name).unlink()
    assert lsmkv.repair(path).rebuilt
    with lsmkv.open(path) as db:
        assert dict(db.items()) == contents == {b"b": b"new", b"z": b"1"}


def test_rebuild_one_level_only(tmp_path):
    with layered(tmp_path / "db", bits_per_key=6) as db:
        db.set_options(bits_per_key=12)
        assert db.rebuild_filters(level=0) == 2
        levels = filters_of(db)
        assert {info["millibits"] for info in levels.pop(0)} == {12_000}
        assert {info["millibits"] for infos in levels.values() for info in infos} == {6_000}


def test_new_options_hold_for_new_tables_without_reopening(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        fill(db, 0, 100)
        db.flush()
        db.set_options(bits_per_key=15.5)
        fill(db, 100, 200)
        db.flush()
        assert [info["millibits"] for info in filters_of(db)[0]] == [15_500, 10_000]


# --- other seeds ---


def test_tables_of_another_seed_answer_by_their_own(tmp_path):
    foreign = tmp_path / "foreign.sst"
    with lsmkv.SSTWriter(foreign) as writer:
        for i in range(0, 1000, 2):
            writer.put(key(i), b"ingested")
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        fill(db, 1, 1000, 2)
        db.flush()
        db.ingest([foreign])
        assert all(db.get(key(i)) == b"ingested" for i in range(0, 1000, 2))
        assert all(db.get(key(i)) is not None for i in range(1, 1000, 2))
        db.reset_stats()
        assert not any(db.multi_get([absent(i) for i in range(1000)]))
        total = db.stats().total.filter
        assert total.negatives > 0.9 * total.lookups


# --- prefixes ---


@pytest.mark.parametrize("extractor", (6, b"/", [3, 6], [1, 2, 6, 7]))
def test_prefix_filters_never_hide_a_key_and_skip_tables(tmp_path, extractor):
    rng = random.Random(5)
    users = [b"u%04d/" % i for i in rng.sample(range(10_000), 400)]
    written = {}
    with lsmkv.open(tmp_path / "db", **SMALL, l0_compaction_trigger=20, prefix_extractor=extractor) as db:
        for part in range(4):
            with db.write_batch() as batch:
                for user in users[part::4]:
                    for i in range(5):
                        k = user + b"%d" % i
                        written[k] = b"%d" % part
                        batch.put(k, written[k])
            db.flush()
        db.put(b"short", b"outside the domain")
        db.put(b"u9", b"shorter than the prefix")
        db.flush()
        for user in users:
            expected = [(k, v) for k, v in sorted(written.items()) if k.startswith(user)]
            assert list(db.iterator(prefix=user)) == expected
            assert list(db.iterator(start=user + b"1", stop=user + b"4")) == expected[1:4]
        written[b"u9"] = b"shorter than the prefix"
        assert next(iter(db.iterator(prefix=b"u9")))[0] == b"u9"
        assert list(db.iterator(prefix=b"u")) == sorted(written.items())
        for missing in (b"u%04d/" % i for i in range(0, 10_000, 37)):
            if missing not in users:
                assert list(db.iterator(prefix=missing)) == []
        assert list(db.iterator(reverse=True)) == sorted(db.items(), reverse=True)


def test_prefix_filters_save_the_reads_of_a_scan_for_nothing(tmp_path):
    """Neither a prefix nor bounds within one may cost a read where no table has a key of it."""
    options = SMALL | {"prefix_extractor": 5, "bits_per_key": 20}
    with lsmkv.open(tmp_path / "db", **options) as db:
        for part in range(2):
            for i in range(part, 4000, 4):
                db.put(b"%05d:key" % i, b"v" * 100)
            db.flush()
        db.compact_range()
        assert max(level.files for level in db.stats().levels) > 3
    with lsmkv.open(tmp_path / "db", **options) as db:
        for i in range(2, 4000, 40):
            assert list(db.iterator(prefix=b"%05d" % i)) == []
            assert list(db.iterator(prefix=b"%05d" % i, reverse=True)) == []
            assert list(db.iterator(start=b"%05d:a" % i, stop=b"%05d:z" % i)) == []
        assert db.stats().cache.used <= 2 * 8192, "300 scans read two blocks at most"
        assert list(db.iterator(start=b"00001:a", stop=b"00001:z")) == [(b"00001:key", b"v" * 100)]
        assert len(list(db.iterator(start=b"00000", stop=b"00100"))) == 50
        assert len(list(db.iterator(start=b"00000:key", stop=b"03997:key", include_stop=True))) == 2000


def test_scans_use_the_longest_prefix_that_fits(tmp_path):
    """Tables of customers b"c00".., each with orders: one length alone would skip tables of only one kind of scan."""
    options = SMALL | {"prefix_extractor": [3, 6], "bits_per_key": 20, "l0_compaction_trigger": 20}
    with lsmkv.open(tmp_path / "db", **options) as db:
        db._work.claims.suspended += 1
        for part in range(8):
            for customer in range(part, 80, 8):
                for order in range(2):
                    db.put(b"c%02d:%d%d:x" % (customer, order, part), b"v")
            db.flush()

        def touched(**bounds):
            before = db.stats().cache
            found = list(db.iterator(**bounds, include_value=False))
            after = db.stats().cache
            return found, after.hits + after.misses - before.hits - before.misses

        found, one = touched(prefix=b"c79")  # beyond the largest key of all tables but one
        assert len(found) == 2
        for customer in range(0, 79, 7):
            part, name = customer % 8, b"c%02d" % customer
            orders = [name + b":%d%d:x" % (order, part) for order in range(2)]
            assert touched(prefix=name) == (orders, one)
            assert touched(start=name + b":", stop=name + b":z") == (orders, one)
            assert touched(start=name, stop=name[:-1] + bytes([name[-1] + 1])) == (orders, one)
            assert touched(prefix=orders[1][:6]) == (orders[1:], one)
            assert touched(prefix=name, start=orders[0], stop=orders[0] + b"z") == (orders[:1], one)
            absent = name + b":0x"
            assert touched(prefix=absent) == touched(start=absent + b"a", stop=absent + b"b") == ([], 0)
        stop = b"c7:"
        db.put(stop, b"v")
        db.flush()
        assert touched(start=b"c79", stop=stop)[0] == found
        assert touched(start=b"c79", stop=stop, include_stop=True)[0] == [*found, stop]


def test_prefix_lengths_are_filter_debt_and_counted_as_keys(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL, prefix_extractor=4) as db:
        for i in range(3000):
            db.put(b"%08d" % (i * 7), b"v")
        db.compact_range()
        assert db.filter_debt() == {}
        before = db.stats().total.filter
        db.set_options(prefix_extractor=[4, 6])
        assert set(db.filter_debt().values()) == {"prefix"}
        assert db.rebuild_filters() == len(db._tree.tables())
        assert db.filter_debt() == {}
        after = db.stats().total.filter
        prefixes = {b"%08d" % (i * 7) for i in range(3000)}
        expected = 3000 + len({k[:4] for k in prefixes}) + len({k[:6] for k in prefixes})
        assert before.keys < expected <= after.keys <= expected + 2 * len(db._tree.tables())
        for i in range(0, 3000, 50):
            assert list(db.keys(prefix=b"%08d" % (i * 7))) == [b"%08d" % (i * 7)]
    assert lsmkv.verify(tmp_path / "db")


@pytest.mark.parametrize("kind", [(1, 5), (2, ord("0")), (3, 0x0504)])
def test_verify_notices_a_filter_without_the_prefixes(tmp_path, kind):
    """A sound filter of the keys alone, whose header claims that it has prefixes.

    There are hundreds of prefixes, because the filter passes some of them by chance.
    """
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        for i in range(300):
            db.put(b"%08d" % (i * 333_331), b"value")
        db.compact_range()
        (file,) = table_files(db)
    data = bytearray(file.read_bytes())
    at = len(data) - 160
    data[at + 40 : at + 48] = struct.pack("<II", *kind)
    data[at + 56 : at + 64] = struct.pack("<Q", codecs.hash64(bytes(data[at : at + 56]), HEADER_SEED))
    file.write_bytes(data)
    assert Table(str(file), 1, None, None).filter_info["usable"]
    found = lsmkv.verify(tmp_path / "db", deep=True).findings
    assert [f for f in found if "filter denies a key" in str(f)]


def test_the_memory_budget_counts_prefixes(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL, prefix_extractor=[9, 11]) as db:
        fill(db, 0, 20_000)
        db.compact_range()
        db.set_options(bits_per_key="auto", filter_memory=20_000)
        db.rebuild_filters()
        total = db.stats().total.filter
        assert total.keys > 40_000, "every key is a prefix of 11 bytes too"
        assert 12_000 < total.memory_bytes <= 20_000


@pytest.mark.parametrize("how", ["open", "set_options"])
def test_several_prefix_lengths_upgrade_a_format_1_database(tmp_path, monkeypatch, how):
    with monkeypatch.context() as patch:
        patch.setattr(open_writer, "LATEST_FORMAT", 1)
        with lsmkv.open(tmp_path / "db", **SMALL) as db:
            fill(db, 0, 100)
    with lsmkv.open(tmp_path / "db", prefix_extractor=9) as db:
        assert db._versions.state.format_version == 1
        if how == "set_options":
            db.set_options(prefix_extractor=[4, 9])
            assert db._versions.state.format_version == LATEST_FORMAT
    with lsmkv.open(tmp_path / "db", prefix_extractor=[4, 9]) as db:
        assert db._versions.state.format_version == LATEST_FORMAT
        db.rebuild_filters()
        assert {info["prefix_kind"] for infos in filters_of(db).values() for info in infos} == {3}
        assert len(list(db.keys(prefix=key(5)[:9]))) == 100


# --- shadow ---


def test_shadow_reads_prove_the_negatives(tmp_path):
    with layered(tmp_path / "db", filter_shadow_ratio=1.0) as db:
        for i in range(200):
            assert db.get(absent(i)) is None
        stats = db.stats()
        assert stats.shadow.checks == stats.total.filter.negatives > 0
        assert stats.shadow.wrong == 0


@pytest.fixture
def lying(tmp_path):
    """A database whose one table has a sound filter of other keys."""
    path = tmp_path / "db"
    file, seed = compacted(path, 300)
    header_at, bits_at, bits_size = filter_place(file)
    data = bytearray(file.read_bytes())
    wrong = lsmkv.BlockedBloom(300, bits_per_key=10, seed=seed)
    wrong.add_many(b"other %d" % i for i in range(300))
    blob = bytearray(wrong.to_bytes())
    for field in (slice(16, 24), slice(36, 40)):  # number of keys, level
        blob[field] = data[header_at:][field]
    blob[56:64] = codecs.hash64(bytes(blob[:56]), HEADER_SEED).to_bytes(8, "little")
    assert len(blob) == 64 + bits_size
    data[header_at : header_at + 64] = blob[:64]
    data[bits_at : bits_at + bits_size] = blob[64:]
    file.write_bytes(data)
    return path, file


@pytest.mark.parametrize("many", [False, True])
def test_a_filter_that_lies_is_found_out_by_shadow_reads(lying, many):
    path, file = lying
    with lsmkv.open(path, "r", filter_shadow_ratio=1.0) as db:
        assert db.stats().total.filter.tables_damaged == 0
        with pytest.raises(lsmkv.CorruptionError, match="denies a key") as caught:
            for i in range(300):
                assert (db.multi_get([key(i)])[0] if many else db.get(key(i))) is not None
        assert caught.value.file == str(file)
        stats = db.stats()
        assert stats.shadow.wrong == 1
        assert stats.alarms[0].name == "filter_wrong"


def test_a_negative_is_sampled_every_256th_time(tmp_path):
    with lsmkv.open(tmp_path / "db", **SMALL) as db:
        fill(db, 0, 300)
        db.flush()
        asked = [absent(i % 290) for i in range(1160)]
        for i in range(3):
            db.get(asked[i])
        db.multi_get(asked[3:400])
        for name in asked[400:]:
            db.get(name)
        total = db.stats().total.filter
        assert total.sampled == total.negatives // 256 == 4


# --- explain ---


def test_explain_traces_a_hit_and_a_miss(tmp_path):
    with layered(tmp_path / "db") as db:
        hit = db.explain(key(3))
        assert hit.found
        assert hit.steps[-1].result == "found" and hit.steps[-1].filter == "maybe"
        assert hit.steps[-1].read_from in ("cache", "disk") and hit.steps[-1].bytes > 0
        assert [step.level for step in hit.steps if step.source == "table"] == sorted(
            step.level for step in hit.steps if step.source == "table"
        )
        missing = next(
            traced for traced in (db.explain(absent(i)) for i in range(50)) if traced.steps[-1].filter == "no"
        )
        assert not missing.found
        assert {step.filter for step in missing.steps if step.source == "table"} <= {"no", "maybe"}
        assert all(step.block is None for step in missing.steps if step.filter == "no")
        assert "filter no" in str(missing)


def test_explain_shows_a_damaged_filter(one_table):
    path, file, data, keys = one_table
    _, bits_at, _ = filter_place(file)
    try:
        flip(file, 8 * bits_at, data)
        with lsmkv.open(path, flag="r", **SMALL) as db:
            step = db.explain(keys[5]).steps[-1]
            assert step.filter == "damaged" and step.result == "found"
    finally:
        file.write_bytes(data)


# --- counters ---


def test_counters_live_as_long_as_the_handle_and_can_be_reset(tmp_path):
    with layered(tmp_path / "db") as db:
        db.get(absent(1))
        assert db.stats().reads.gets == 1
        assert db.stats().reads.gets == 1, "reading statistics changes none"
        db.reset_stats()
        assert db.stats().reads.gets == 0 and db.stats().total.filter.lookups == 0
