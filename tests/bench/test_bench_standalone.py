"""filter_kernel, filter_tree, counters_cost, features, first_key and instructions at a small size.

No test depends on a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lsmkv
from lsmkv_bench import counters_cost, features, fill_space, filter_kernel, filter_tree, first_key, instructions
from lsmkv_bench.standalone import best_in_turns


def test_false_positive_rates_of_four_kinds_of_keys() -> None:
    rows = filter_kernel.rates(3000, 20_000, 500)
    assert {row["keys"] for row in rows} == {"random", "decimal", "uuid", "url"}
    assert all(row["false_negatives"] == 0 for row in rows)
    assert all(row["low"] < row["observed"] < row["high"] for row in rows)
    for row in rows:
        # At 500 hits, five sigma are 22 %.
        assert row["observed"] == pytest.approx(row["designed"], rel=0.25), row


def test_wrong_rate_is_reported() -> None:
    row = {"keys": "url", "bits_per_key": 10, "low": 0.0106, "high": 0.0108, "expected": 0.01}
    assert filter_kernel._wrong_rates([row]) == ["url at 10 bits"]
    assert filter_kernel._wrong_rates([row | {"low": 0.0103}]) == []


def test_best_in_turns_sums_the_best_of_each_portion() -> None:
    times = {"a": iter([5.0, 1.0, 3.0, 2.0]), "b": iter([4.0, 4.0, 4.0, 4.0])}
    calls: list[str] = []

    def timer(name: str) -> Callable[[int], float]:
        def measure(portion: int) -> float:
            calls.append(f"{name}{portion}")
            return next(times[name])

        return measure

    assert best_in_turns({name: timer(name) for name in times}, 2, 2) == {"a": 3.0 + 1.0, "b": 8.0}
    assert calls == ["a0", "b0", "b1", "a1", "a0", "b0", "b1", "a1"]


def test_absent_lookups_are_counted(tmp_path: Path) -> None:
    with lsmkv.open(tmp_path / "db", **filter_tree.OPTIONS) as db:
        filter_tree._load(db, 5000, [b"v"])
        found = filter_tree.misses(db, 500)
        assert found["tables_per_lookup"] >= 1
        assert found["wasted_reads_per_table"] < 0.1
        assert found["filter_bytes"] == sum(row["filter_bytes"] for row in filter_tree.shape(db))


def test_trees_of_different_shapes_are_compared(tmp_path: Path) -> None:
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


def test_copies_of_a_tree_differ_only_in_their_filters(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    with filter_tree.no_idle_compaction():
        with lsmkv.open(path, **filter_tree.OPTIONS) as db:
            filter_tree._load(db, 8000, [b"value"])
            db.compact_range()
            for i in range(3):
                db.put(filter_tree._key(i), b"again")
                db.flush()
            built = filter_tree.shape(db)
        many = filter_tree.with_options(path, 500, 8000, bits_per_key=20.0)
        few = filter_tree.with_options(path, 500, 8000, bits_per_key=4.0)
    trees = (built, many["tree"], few["tree"])
    sizes = [[(row["level"], row["files"], row["entries"]) for row in tree] for tree in trees]
    assert sizes[0] == sizes[1] == sizes[2]
    assert sizes[0][0] == (0, 3, 3)
    assert many["filter_bytes"] > 4 * few["filter_bytes"]
    assert many["wasted_reads_per_lookup"] < few["wasted_reads_per_lookup"]


def make_trees_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("write_buffer_size", "target_file_size"):
        monkeypatch.setitem(filter_tree.OPTIONS, name, filter_tree.OPTIONS[name] // 16)


def test_a_tree_that_is_due_for_compaction_stays_as_it_is(tmp_path: Path) -> None:
    """Smaller filters may make a level due: the targets of the levels shrink with the last one."""
    with filter_tree.no_idle_compaction():
        with lsmkv.open(tmp_path / "tree", **filter_tree.OPTIONS) as db:
            for i in range(3):
                db.put(filter_tree._key(i), b"value")
                db.flush()
        due = {"l0_compaction_trigger": 2, "bits_per_key": 20.0}
        filter_tree.copy_with_filters(tmp_path / "tree", tmp_path / "copy", due)
    with lsmkv.open(tmp_path / "copy", "r") as db:
        assert [(row["level"], row["files"]) for row in filter_tree.shape(db)] == [(0, 3)]


def test_a_small_tree_is_measured_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trees_small(monkeypatch)
    found = filter_tree.measure(tmp_path, 80_000, 20_000)
    assert [row["level"] for row in found["tree"]] == [0, 1, 2, 3]
    assert found["for_hits"]["bits_per_level"][3] == 0
    assert found["auto_over_uniform"] < 1
    assert found["auto"]["alarms"] == found["auto_fuse"]["alarms"] == []
    filter_tree.show(found)
    assert "rebuilding the filters of 20,000 keys from 6 to 12 bits" in capsys.readouterr().out


def test_a_copy_whose_tree_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lsmkv.open(tmp_path / "tree", **filter_tree.OPTIONS) as db:
        filter_tree._load(db, 3000, [b"value"])
        db.compact_range()
    monkeypatch.setattr(lsmkv.DB, "rebuild_filters", lambda db: db.delete_range(b"", b"z") or db.compact_range())
    with pytest.raises(RuntimeError, match="compaction changed the tree"):
        filter_tree.copy_with_filters(tmp_path / "tree", tmp_path / "copy", {"bits_per_key": 12.0})


def test_share_of_verification(tmp_path: Path) -> None:
    assert 0 < filter_tree.verify_share_of_flushes(tmp_path / "db", 20_000) < 1


def test_worker_times_lookups(tmp_path: Path) -> None:
    counters_cost._load(tmp_path / "db", 3000)
    workers = {"one": counters_cost.Worker(None, tmp_path / "db", 3000)}
    for name in counters_cost.WORKLOADS:
        assert counters_cost.compare(workers, name, 1)["one"] > 0
    assert workers["one"].close() == 2 * counters_cost.LOOKUPS


def test_counting_modules_are_found_by_their_source(tmp_path: Path) -> None:
    (tmp_path / "ext" / "read").mkdir(parents=True)
    (tmp_path / "ext" / "read" / "lookup.pyx").write_text("    lsm_count(&c.gets, 1)\n")
    (tmp_path / "ext" / "engine.pyx").write_text("    c.gets += 1\n")
    assert counters_cost.counting_modules(tmp_path / "ext") == ["ext.read.lookup"]


def test_every_counted_path_runs(tmp_path: Path) -> None:
    instructions.prepare(tmp_path / "tables")
    for name in instructions.PATHS:
        instructions.run_path(name, tmp_path, 200)
    with lsmkv.open(tmp_path / "new", "r") as db:
        assert sum(1 for _ in db) > 5000  # those of get-memtable, and what put and batch-put wrote


def test_unknown_path_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        instructions.main(["--paths", "put,gte"])
    assert "unknown path 'gte'" in capsys.readouterr().err


def test_the_cost_of_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("KEYS", 2000), ("PORTION", 50), ("PORTIONS", 2)):
        monkeypatch.setattr(features, name, value)
    found = features.measure(tmp_path, keyspaces=5, rounds=1)
    figures = [*found["get_ns"].values(), *found["put_ns"].values(), *found["update_ns"].values()]
    assert len(figures) == 6 and all(figure > 0 for figure in figures)
    assert found["keyspaces"]["count"] == 5 and found["keyspaces"]["open_ms"] > 0
    features.show(found)
    assert "in a named keyspace" in capsys.readouterr().out


def test_the_first_key_behind_deletes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = first_key.measure(tmp_path, deletes=2000, rounds=3)
    assert list(found) == ["in memtable", "flushed", "half compacted"]
    assert all(
        scans["first_us"] > 0 and scans["then_us"] > 0 for moments in found.values() for scans in moments.values()
    )
    first_key.show(found)
    assert "half compacted, after a reopen: first scan" in capsys.readouterr().out


def test_filter_kernel_measures_fuse_filters():
    rows = filter_kernel.fuse_rates(3000, 20_000)
    assert {row["width"] for row in rows} == {4, 8, 12}
    assert {row["false_negatives"] for row in rows} == {0}
    for row in rows:
        assert row["low"] < 1.2 * row["expected"] and row["high"] > 0.8 * row["expected"]
    (times,) = filter_kernel.fuse_times({"few": 5000}, 2000, 2)
    assert all(times[f"{what}_ratio"] > 0 for what in ("build", "batch", "single"))


def test_the_space_while_another_engine_fills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = fill_space.measure(tmp_path, num=40_000, peer="lsmkv")
    assert found["peer_seconds"] > 0 and min(found["peer_bytes"], found["lsmkv_bytes"]) > 40_000 * 50
    fill_space.show(found)
    assert "lsmkv when lsmkv has finished" in capsys.readouterr().out
