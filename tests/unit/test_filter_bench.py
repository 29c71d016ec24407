"""The filter benchmarks measure what they say: small runs, no statement about time."""

import pytest

import lsmkv
from lsmkv_bench import counters_cost, filter_kernel, filter_tree
from lsmkv_bench.native.classic_bloom import Blocked, Probes, Unblocked


def test_rates_are_measured_on_four_kinds_of_keys():
    rows = filter_kernel.rates(3000, 20_000, 500)
    assert {row["keys"] for row in rows} == {"random", "decimal", "uuid", "url"}
    assert all(row["false_negatives"] == 0 for row in rows)
    assert all(row["low"] < row["observed"] < row["high"] for row in rows)
    for row in rows:
        # 500 events and more, in small filters: five sigma are 22 %.
        assert row["observed"] == pytest.approx(row["designed"], rel=0.25), row


def test_a_rate_that_is_off_is_named():
    row = {"keys": "url", "bits_per_key": 10, "low": 0.0106, "high": 0.0108, "expected": 0.01}
    assert filter_kernel._off([row]) == ["url at 10 bits"]
    assert filter_kernel._off([row | {"low": 0.0103}]) == []


def test_both_filters_of_the_comparison_answer_at_their_rate():
    probes = Probes(50_000, 5)
    blocked = Blocked(64 << 10, 10_000, 1)
    assert blocked.batch_ns(probes) > 0
    assert probes.positives() / probes.n == pytest.approx(0.0097, rel=0.2)
    in_batch = probes.positives()
    blocked.single_ns(probes)
    assert probes.positives() == in_batch
    Unblocked(64 << 10, 7, 2).single_ns(probes)
    assert probes.positives() / probes.n == pytest.approx(2**-7, rel=0.2)


def test_misses_are_counted_in_a_tree(tmp_path):
    with lsmkv.open(tmp_path / "db", **filter_tree.OPTIONS) as db:
        filter_tree._load(db, 5000, [b"v"])
        found = filter_tree.misses(db, 500)
        assert found["tables_per_lookup"] >= 1
        assert found["reads_in_vain_per_table"] < 0.1
        assert found["filter_bytes"] == sum(row["filter_bytes"] for row in filter_tree.shape(db))


def test_trees_of_another_shape_are_compared(tmp_path):
    with lsmkv.open(tmp_path / "flat", **filter_tree.OPTIONS) as db:
        filter_tree._load(db, 3000, [b"v"])
        db.compact_range()
        db.checkpoint(tmp_path / "high")
    with lsmkv.open(tmp_path / "high", **filter_tree.OPTIONS) as db:
        filter_tree._load(db, 3000, [b"w"])
    trees = {"flat": tmp_path / "flat", "high": tmp_path / "high"}
    costs = filter_tree.levels_cost(trees, 2000, 3000, rounds=2)
    assert costs["flat"]["tables_per_lookup"] == pytest.approx(1, abs=0.01)
    assert costs["high"]["tables_per_lookup"] == pytest.approx(2, abs=0.01)
    assert all(cost["ns_per_lookup"] > 0 for cost in costs.values())


def test_the_share_of_verifying_is_between_nothing_and_all(tmp_path):
    assert 0 < filter_tree.verify_share_of_flushes(tmp_path / "db", 20_000) < 1


def test_lookups_are_timed_in_another_process(tmp_path):
    counters_cost._load(tmp_path / "db", 3000)
    workers = {"one": counters_cost.Worker(None, tmp_path / "db", 3000)}
    for name in counters_cost.WORK:
        assert counters_cost.compare(workers, name, 1)["one"] > 0
    assert workers["one"].close() == 2 * counters_cost.LOOKUPS
