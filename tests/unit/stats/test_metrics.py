"""Statistics from raw counters: pure, so every figure is checked against a hand-made tree."""

import dataclasses
import json

import pytest

from lsmkv.stats.metrics import TableInfo, make_stats


def table(level, number=1, **changes):
    made = TableInfo(
        level=level,
        number=number,
        size=1_000_000,
        entries=8192,
        filter_bytes=10_240,
        filter_keys=8192,
        millibits=10_000,
        n_blocks=160,
        fill_ratio=0.45,
        problem="ok",
    )
    return dataclasses.replace(made, **changes)


COUNTERS = {
    "levels": [
        {"lookups": 4000, "checks": 4000, "negatives": 3960, "positives": 40, "true_positives": 10,
         "false_positives": 30, "sampled": 60, "sampled_bytes": 120_000, "sampled_cached": 45,
         "sampled_disk": 15, "designed_fpr_sum": 38.304},
        {"lookups": 1000, "checks": 0, "unfiltered": 900, "fail_open": 100},
    ],
    "gets": 1500, "gets_found": 1100, "memtable_hits": 300, "cache_hits": 900, "disk_reads": 100,
    "disk_bytes": 400_000, "disk_ns": 5_000_000, "cache_timed": 10, "cache_timed_ns": 4000,
    "puts": 7, "deletes": 2, "batches": 3, "bytes_written": 4096, "log_bytes": 5000, "log_syncs": 4,
    "log_sync_ns": 800_000, "seeks": 11, "nexts": 12, "slowdowns": 2, "slowdown_ns": 1_000_000, "stops": 1,
    "stop_ns": 2_000_000_000,
}  # fmt: skip

TREE = [
    table(0),
    table(1, 2, problem="absent", filter_bytes=0),
    table(1, 3, problem="bad checksum", debt="damaged"),
]


def stats(counters=COUNTERS, tables=TREE, **more):
    return make_stats(counters, tables, **more)


def test_verdicts_of_one_level():
    f = stats().levels[0].filter
    assert (f.lookups, f.checks, f.negatives, f.positives) == (4000, 4000, 3960, 40)
    assert (f.true_positives, f.false_positives) == (10, 30)
    assert f.observed_fpr == pytest.approx(30 / 3990)
    assert f.observed_fpr_low < f.observed_fpr < f.observed_fpr_high
    assert f.designed_fpr == pytest.approx(0.0096)
    assert f.useful_ratio == pytest.approx(0.99)


def test_skipped_io_is_exact_in_number_and_scaled_from_the_sample():
    f = stats().levels[0].filter
    assert f.blocks_skipped == 3960
    assert f.sampled == 60
    assert (f.blocks_skipped_disk, f.blocks_skipped_cache) == (990, 2970)
    assert f.bytes_skipped == 3960 * 2000
    assert f.bytes_skipped_disk == 990 * 2000
    assert f.seconds_saved == pytest.approx((990 * 50_000 + 2970 * 400) / 1e9)


def test_memory_fill_and_health():
    found = stats()
    upper, lower = (level.filter for level in found.levels)
    assert (upper.memory_bytes, upper.tables, upper.fill_ratio) == (10_240, 1, 0.45)
    assert upper.keys_of_design == pytest.approx(1.0)
    assert (lower.memory_bytes, lower.tables_without, lower.tables_damaged) == (0, 1, 1)
    assert (lower.unfiltered, lower.fail_open, lower.debt_tables) == (900, 100, 1)
    assert lower.observed_fpr is None and lower.fill_ratio is None
    assert (lower.observed_fpr_low, lower.observed_fpr_high) == (0, 1)


def test_total_is_the_sum_of_the_levels():
    found = stats()
    for name in ("lookups", "checks", "negatives", "false_positives", "unfiltered", "fail_open", "keys"):
        assert getattr(found.total.filter, name) == sum(getattr(level.filter, name) for level in found.levels)
    assert (found.total.files, found.total.entries, found.total.level) == (3, 3 * 8192, -1)
    assert found.total.filter.designed_fpr == pytest.approx(0.0096)


def test_everything_else():
    found = stats(
        background={"flushes": 2, "flush_bytes": 100, "flush_ns": 10**9, "compactions": 3, "moves": 4,
                    "compaction_bytes_in": 500, "compaction_bytes_out": 400, "compaction_ns": 2 * 10**9,
                    "filter_rebuilds": 5},
        cache={"capacity": 1000, "used": 900, "evictions": 6},
        memtable={"bytes": 50, "entries": 5, "immutable": 1, "immutable_bytes": 70},
    )  # fmt: skip
    assert (found.reads.gets, found.reads.found, found.reads.missing) == (1500, 1100, 400)
    assert found.reads.disk_read_us == pytest.approx(50)
    assert (found.writes.puts, found.writes.deletes, found.writes.bytes) == (7, 2, 4096)
    assert (found.cache.hits, found.cache.misses, found.cache.hit_ratio) == (900, 100, 0.9)
    assert (found.cache.capacity, found.cache.used, found.cache.evictions) == (1000, 900, 6)
    assert (found.log.syncs, found.log.sync_us) == (4, 200)
    assert (found.memtable.bytes, found.memtable.immutable, found.memtable.immutable_bytes) == (50, 1, 70)
    assert (found.flush.count, found.flush.seconds) == (2, 1)
    assert (found.compaction.moves, found.compaction.filter_rebuilds) == (4, 5)
    assert found.compaction.write_amplification == pytest.approx(5)
    assert (found.stalls.slowdowns, found.stalls.stops, found.stalls.stop_seconds) == (2, 1, 2)


def test_a_new_database_has_no_figures_and_no_alarms():
    found = make_stats({})
    assert found.levels == ()
    assert found.total.filter.observed_fpr is None
    assert found.cache.hit_ratio is None
    assert found.compaction.write_amplification is None
    assert found.alarms == ()


def test_it_is_frozen_plain_data():
    found = stats()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.levels = ()
    as_dict = json.loads(json.dumps(found.to_dict()))
    assert as_dict["levels"][0]["filter"]["negatives"] == 3960
    assert as_dict["alarms"][0]["name"] == "filter_damaged"


def test_levels_without_counters_are_shown_too():
    found = make_stats({"levels": []}, [table(3)])
    assert [level.files for level in found.levels] == [0, 0, 0, 1]


# --- alarms ---


def level_counters(**changes):
    base = {"lookups": 100_000, "checks": 100_000, "negatives": 99_000, "false_positives": 1000,
            "positives": 1000, "designed_fpr_sum": 960.0}  # fmt: skip
    return {"levels": [base | changes]}


def alarms(counters, tables=()):
    return [alarm.name for alarm in make_stats(counters, tables).alarms]


def test_no_alarm_when_all_is_well():
    assert alarms(level_counters(), [table(0)]) == []


def test_observed_rate_above_twice_the_designed():
    assert alarms(level_counters(false_positives=2500, negatives=97_500)) == ["filter_fpr"]
    assert alarms(level_counters(false_positives=1500, negatives=98_500)) == []


@pytest.mark.parametrize("hits", [1, 2, 3, 7])
def test_a_handful_of_false_positives_is_no_alarm(hits):
    few = level_counters(checks=100, negatives=100 - hits, false_positives=hits, designed_fpr_sum=0.96)
    assert alarms(few) == []


def test_fill_and_keys():
    assert alarms({}, [table(0, fill_ratio=0.61)]) == ["filter_fill"]
    assert alarms({}, [table(0, filter_keys=8300)]) == ["filter_keys"]


def test_damage_and_lookups_without_the_filter():
    assert alarms({}, [table(0, problem="bad length")]) == ["filter_damaged"]
    assert alarms({"levels": [{"fail_open": 3}]}) == ["filter_damaged"]


def test_filters_that_seldom_say_no():
    seldom = level_counters(negatives=40_000, true_positives=59_700, false_positives=300)
    assert alarms(seldom) == ["filter_useful"]


def test_a_wrong_no_is_the_first_alarm():
    found = make_stats({"shadow_checks": 10, "shadow_wrong": 1, **level_counters(negatives=0)})
    assert found.alarms[0].name == "filter_wrong"
    assert (found.shadow.checks, found.shadow.wrong) == (10, 1)
