"""The pieces without a process: the benchmark list, settings, summaries, comparison, checks."""

from __future__ import annotations

import statistics
from array import array
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_bench import cli, runner
from lsmkv_bench.cli import FLAGS, build_parser, engine_options, main, normalized, to_settings
from lsmkv_bench.engines import engine_class
from lsmkv_bench.native.latency import Histogram
from lsmkv_bench.native.workload import OPS, Ledger, Values, make_keys
from lsmkv_bench.report.compare import changes, judged, parse_percent
from lsmkv_bench.report.interval import summarize
from lsmkv_bench.report.summary import cells, ratio, ratio_range
from lsmkv_bench.report.tables import _value_words, histogram_text, markdown, plain, result_line
from lsmkv_bench.report.targets import TARGETS
from lsmkv_bench.runner import Gathered, rotation
from lsmkv_bench.session import OPEN_FIELDS, Session
from lsmkv_bench.settings import Settings, parse_bool, parse_count, parse_size
from lsmkv_bench.workloads.benchmark_list import parse_step, parse_steps
from lsmkv_bench.workloads.operations import GET, SCAN, Chunk
from lsmkv_bench.workloads.registry import WORKLOADS, find
from lsmkv_bench.workloads.suites import SUITES
from lsmkv_bench.workloads.verify import Checker, WrongAnswer

DB_BENCH = """fillseq fillrandom filluniquerandom fillsync fillbatch fill100K overwrite updaterandom deleteseq
deleterandom readseq readreverse readrandom readmissing readhot multireadrandom seekrandom newiterator
readwhilewriting seekrandomwhilewriting readrandomwriterandom mixgraph compact flush open stats levelstats
sstables filterstats ycsba ycsbb ycsbc ycsbd ycsbe ycsbf bloomadd bloomprobe xxh3 lz4comp lz4decomp"""

FLAG_NAMES = """benchmarks engines db use_existing_db num reads writes duration threads key_size value_size
value_size_distribution compression_ratio batch_size cache_size bits_per_key bloom_bits
optimize_filters_for_hits block_size write_buffer_size sync disable_wal seed histogram
report_interval_seconds distribution rate memory_budget seek_nexts json csv plot compare fail_if_slower"""


@pytest.mark.parametrize("name", DB_BENCH.split())
def test_every_workload_exists(name: str) -> None:
    assert find(parse_step(name).name) is WORKLOADS[name.lower()]


@pytest.mark.parametrize("name", FLAG_NAMES.split())
def test_every_flag_exists_with_either_spelling(name: str) -> None:
    known = build_parser()._option_string_actions
    assert normalized([f"--{name}"]) == normalized(["--" + name.replace("_", "-")])
    assert normalized([f"--{name}"])[0] in known


def test_flags_cover_the_settings() -> None:
    by_hand = {"benchmarks", "engines", "db", "use_existing_db", "runs", "engine_options"}
    assert {name.replace("-", "_") for name, _, _ in FLAGS} | by_hand == {f.name for f in fields(Settings)}
    assert set(OPEN_FIELDS) <= {f.name for f in fields(Settings)}


def test_values_keep_their_underscores() -> None:
    assert normalized(["--engine_x=a_b", "read_random", "--json=out_1.json"]) == [
        "--engine-x=a_b",
        "read_random",
        "--json=out_1.json",
    ]


def test_step_syntax() -> None:
    step = parse_step("readrandom[X3-W1]:threads=2:title=two threads")
    assert (step.name, step.repeat, step.warmup, step.label) == ("readrandom", 3, 1, "two threads")
    assert step.flags == {"threads": "2"}
    assert parse_step("fill100K[W2]").warmup == 2
    assert [s.label for s in parse_steps("a, b:num=3")] == ["a", "b:num=3"]


@pytest.mark.parametrize("text", ["", " , ", "a[3]", "a[X0]", "a[Xq]", "a:b", "a b", "[X3]"])
def test_bad_steps_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_steps(text)


def test_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'readrandom'"):
        find("readrandum")


@pytest.mark.parametrize("suite", SUITES)
def test_suites_parse_and_their_flags_fit(suite: str) -> None:
    for step in parse_steps(SUITES[suite]):
        assert find(step.name)
        Settings().but(step.flags)


def test_every_target_is_a_row_of_a_suite() -> None:
    labels = {step.label for text in SUITES.values() for step in parse_steps(text)}
    assert set(TARGETS) <= labels


def test_sizes_and_counts() -> None:
    assert [parse_size(t) for t in ("4096", "64k", "64MB", "1GiB", "1.5m")] == [
        4096,
        65536,
        64 << 20,
        1 << 30,
        3 << 19,
    ]
    assert [parse_count(t) for t in ("1_000", "1e6", "10k", "2M")] == [1000, 10**6, 10**4, 2 * 10**6]
    assert [parse_bool(t) for t in ("1", "true", "0", "no")] == [True, True, False, False]
    for parse in (parse_size, parse_count, parse_bool):
        with pytest.raises(ValueError):
            parse("much")


def test_settings_round_trip_and_per_step_changes() -> None:
    settings = Settings(engines=("dict",), engine_options={"lsmkv": {"wal": None}})
    assert Settings.from_dict(settings.to_dict()) == settings
    changed = settings.but({"threads": "8", "sync": "1", "cache-size": "8MB", "bloom_bits": "auto"})
    assert (changed.threads, changed.sync, changed.cache_size, changed.bits_per_key) == (
        8,
        True,
        8 << 20,
        "auto",
    )
    for name in ("engines", "num", "nonsense"):
        with pytest.raises(ValueError, match="cannot be set"):
            settings.but({name: "1"})


def test_memory_budget_is_split() -> None:
    settings = Settings(memory_budget=256 << 20, write_buffer_size=64 << 20).resolved()
    assert settings.cache_size == 128 << 20
    with pytest.raises(ValueError, match="leaves no block cache"):
        Settings(memory_budget=64 << 20).resolved()


def test_command_line_to_settings() -> None:
    words = [
        "--num=1000",
        "--bloom_bits",
        "12",
        "--sync",
        "--histogram=0",
        "--engines",
        "dict, lmdb",
        "--option",
        "lsmkv.wal='write'",
        "--option",
        "lsmkv.l0_compaction_trigger=2",
    ]
    settings = to_settings(build_parser().parse_args(normalized(words)))
    assert (settings.num, settings.bits_per_key, settings.sync, settings.histogram) == (
        1000,
        12.0,
        True,
        False,
    )
    assert settings.engines == ("dict", "lmdb")
    assert settings.engine_options == {"lsmkv": {"wal": "write", "l0_compaction_trigger": 2}}
    with pytest.raises(ValueError, match="ENGINE"):
        engine_options(["wal=1"])


@pytest.mark.parametrize(
    "words",
    [
        ["--num=many"],
        ["--benchmarks=fly", "--engines=dict"],
        ["--engines=oracle"],
        ["--suite=none"],
        ["--fail-if-slower=10%"],
        ["--load=/does/not/exist.json"],
        ["--memory-budget=1k", "--engines=dict"],
        ["--engines="],
        ["--engines=dict", "--num=0"],
        ["--engines=dict", "--num=-5"],
        ["--engines=dict", "--runs=0"],
        ["--engines=dict", "--threads=0"],
        ["--engines=dict", "--value_size=-1"],
        ["--engines=dict", "--key_size=2", "--num=101"],
        ["--engines=dict", "--distribution=foo"],
        ["--engines=dict", "--distribution=zipf:x"],
        ["--engines=dict", "--value_size_distribution=foo"],
        ["--engines=dict", "--compression=foo"],
        ["--engines=dict", "--compression_ratio=3"],
        ["--engines=dict", "--benchmarks=fillseq:threads=0"],
        ["--engines=dict", "--num=inf"],
        ["--engines=dict", "--cache_size=inf"],
        ["--engines=dict", "--duration=nan"],
        ["--engines=dict", "--report_interval_seconds=inf"],
        ["--engines=dict,dict"],
        ["--engines=dict", "--bits_per_key=-1"],
        ["--engines=dict", "--bits_per_key=many"],
        ["--engines=dict", "--value_size_distribution=uniform", "--value_size_min=9", "--value_size_max=8"],
        ["--engines=dict", "--sync", "--disable_wal"],
        ["--engines=dict", "--benchmarks=fillsync", "--disable_wal"],
        ["--engines=dict", "--fail-if-slower=ten", "--compare=x"],
        ["--engines=dict", "--compare=/does/not/exist.json"],
        ["--engines=dict", "--json=/dev/null/out.json"],
        ["--engines=dict", "--csv=/dev"],
    ],
)
def test_bad_words_are_refused_with_exit_code_2(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is run: what a run of an hour found must not be lost to a misspelt name."""
    monkeypatch.setattr(runner, "_run_once", lambda *_: pytest.fail("it ran"))
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "lsmkv-bench: error:" in capsys.readouterr().err


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    monkeypatch.setattr(cli, "_run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(SystemExit) as caught:
        main(["--engines=dict", "--plot=out.png"])
    assert caught.value.code == 2
    assert "matplotlib" in capsys.readouterr().err


def test_an_unknown_kind_of_picture_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(cli, "_run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(SystemExit) as caught:
        main(["--engines=dict", f"--plot={tmp_path / 'out.foo'}"])
    assert caught.value.code == 2
    assert "cannot draw 'foo'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", '{"schema": 1}', '{"schema": 9}', "no JSON", '{"schema": 1, "settings": {}}'])
def test_a_file_that_is_no_result_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        main([f"--load={path}"])
    assert caught.value.code == 2
    assert "result" in capsys.readouterr().err or text == "no JSON"


def test_peers_get_filters_where_ours_are_automatic() -> None:
    """RocksDB had none then, and its mapping said "auto"."""
    assert Settings(bits_per_key="auto").peer_bits_per_key == 10
    assert Settings(bits_per_key=7.5).peer_bits_per_key == 7.5
    for name in ("rocksdb", "leveldb"):
        engine = engine_class(name)("", Settings(bits_per_key="auto"))
        assert "auto" not in engine.mapping()["filter"] and "10" in engine.mapping()["filter"]


def test_the_mapping_says_where_there_are_no_filters() -> None:
    for hits, words in ((False, "bits/key"), (True, "none at the bottom"), ("auto", "by the misses at the bottom")):
        engine = engine_class("lsmkv")("", Settings(optimize_filters_for_hits=hits))
        assert engine.mapping()["filter"].endswith(words)


def test_a_picture_and_a_page_of_nothing_are_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LMDB's keys are short, and nobody else was asked for."""
    pytest.importorskip("lmdb")
    page = tmp_path / "page.md"
    assert main(["--engines=lmdb", "--key_size=600", "--num=10", f"--markdown={page}"]) == 1
    assert "no engine is left to run: lmdb: its keys have at most 511 bytes" in capsys.readouterr().err
    assert not page.exists()


def test_what_the_page_says_of_the_values() -> None:
    words = [
        _value_words(Settings(**changes))  # type: ignore[arg-type]
        for changes in (
            {},
            {"value_size": 8, "compression_ratio": 0.2},
            {"value_size_distribution": "uniform", "value_size_min": 1, "value_size_max": 9},
            {"value_size_distribution": "pareto"},
        )
    ]
    assert words == [
        "100 bytes (half compressible)",
        "8 bytes (compressible to 20%)",
        "1 to 9 bytes (half compressible)",
        "sizes by pareto (half compressible)",
    ]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_a_workload_says_whether_it_runs_in_threads(name: str) -> None:
    single = {
        *("fillbatch", "deleteseq", "readseq", "readreverse", "multireadrandom", "newiterator", "compact", "flush"),
        *("open", "settle", "stats", "levelstats", "sstables", "filterstats", "bloomadd", "bloomprobe", "xxh3"),
        *("lz4comp", "lz4decomp"),
    }
    assert WORKLOADS[name].threads == (name not in single)


def test_the_progress_line_of_threads_showed_latencies_of_the_workload_before(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    settings = Settings(report_interval_seconds=0.0, num=10)
    session = Session("dict", str(tmp_path), settings, events.append)
    driver = session.driver(settings, get={}.get)
    driver.hist.record(50_000_000)
    with session.measured():
        session.tick(1, 2, 0.1)
        session.recording = [Histogram(), Histogram()]
        for hist in session.recording:
            hist.record(1000)
        session.tick(2, 2, 0.1)
    assert "p99" not in events[0]
    assert events[1]["p99"] == pytest.approx(1000, rel=0.04) and events[1]["stalls"] == 0


def test_rotation_gives_each_engine_its_turn() -> None:
    orders = [rotation(["a", "b", "c"], run) for run in range(3)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert rotation([], 1) == []


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=20))
def test_summary(values: list[float]) -> None:
    summary = summarize(values)
    assert summary.median == statistics.median(values)
    assert summary.mean == pytest.approx(statistics.fmean(values))
    assert summary.half >= 1.9 * summary.stdev / len(values) ** 0.5
    assert (summary.low, summary.high) == (min(values), max(values))


def test_known_interval() -> None:
    summary = summarize([1.0, 2.0, 3.0])
    assert summary.half == pytest.approx(4.303 / 3**0.5)
    assert summarize([5.0]).half == 0


def gathered(micros: dict[str, float], engines: tuple[str, ...] = ("lsmkv", "lmdb")) -> Gathered:
    """Results of one workload, `w`, and of the warm-up, which no table shows."""
    results: list[dict[str, Any]] = [
        {"workload": workload, "engine": engine, "run": 0, "micros_per_op": us, "threads": 1}
        for engine, us in micros.items()
        for workload in ("w", "warm-up")
    ]
    return Gathered(Settings(engines=engines), results, dict.fromkeys(micros, "1"))


def test_compare_judges_the_first_engine_only() -> None:
    old, new = gathered({"lsmkv": 1.0, "lmdb": 1.0}), gathered({"lsmkv": 1.2, "lmdb": 9.0})
    found = changes(old, new)
    assert [(c.engine, round(c.slower, 3)) for c in found] == [("lsmkv", 0.2), ("lmdb", 8.0)]
    assert [c.engine for c in judged(found, new, 0.1)] == ["lsmkv"]
    assert judged(found, new, 0.25) == []
    assert changes(gathered({"dict": 1.0}), new) == []


def test_a_ratio_is_the_median_of_what_was_measured_side_by_side() -> None:
    """The second run was on a machine twice as slow: its ratio is no other for that."""
    times = {"lsmkv": (1.0, 2.0, 1.0), "lmdb": (3.0, 6.6, 2.5)}
    results = [
        {"workload": "w", "engine": engine, "run": run, "micros_per_op": micros, "threads": 1}
        for engine, by_run in times.items()
        for run, micros in enumerate(by_run)
    ]
    row = cells(results)["w"]
    assert ratio(row, "lmdb", "lsmkv") == 3.0
    assert ratio_range(row, "lmdb", "lsmkv") == (2.5, 3.3)
    assert ratio(row, "dict", "lsmkv") is None and ratio_range(row, "dict", "lsmkv") is None


def test_percent() -> None:
    assert (parse_percent("10%"), parse_percent("0.1")) == (0.1, 0.1)
    for text in ("ten", "-5%"):
        with pytest.raises(ValueError):
            parse_percent(text)


def test_tables_as_text() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert plain(["a", "bb"], [["111", "2"]]) == "a    bb\n---  --\n111  2"


def test_result_line_and_histogram_look_like_db_bench() -> None:
    hist = Histogram()
    for ns in (1000, 1500, 2500, 900_000):
        hist.record(ns)
    result = {
        "workload": "readrandom",
        "micros_per_op": 2.5,
        "ops_per_second": 400000.0,
        "seconds": 0.5,
        "ops": 200000,
        "mb_per_second": 46.4,
        "found": 3,
        "detail": {},
        "latency": {"histogram": hist.to_dict()},
    }
    assert result_line(result) == (
        "readrandom   :       2.500 micros/op 400000 ops/sec 0.500 seconds 200000 operations;   46.4 MB/s"
        " (3 of 200000 found)"
    )
    text = histogram_text(result)
    assert "P50:" in text and "P99.99:" in text and "Max: 900.000" in text
    assert sum(int(line.split(")")[1].split()[0]) for line in text.splitlines() if line.startswith("[")) == 4


class TestChecker:
    """A checker over records 2, 5 and 9, all of generation 1."""

    def setup_method(self) -> None:
        self.values = Values(1)
        ledger = Ledger(10)
        ledger.play(bytes([OPS["put"]]) * 3, array("Q", [2, 5, 9]), 1)
        self.checker = Checker(ledger, 16)
        self.checker.makers[1] = self.values

    def pair(self, number: int) -> tuple[bytes, bytes]:
        return b"%016d" % number, self.values.one(number, 1)

    def chunk(self, op: int, number: int, wanted: int, length: int = 1) -> Chunk:
        numbers = array("Q", [number])
        return Chunk(
            bytes([op]), numbers, make_keys(numbers, 16), None, array("I", [length]), bytes([wanted]), 1
        )

    def test_right_answers_pass(self) -> None:
        self.checker.chunk(self.chunk(GET, 2, 1), [(0, self.values.one(2, 1))])
        self.checker.chunk(self.chunk(GET, 3, 0), [(0, None)])
        self.checker.chunk(self.chunk(SCAN, 3, 0, 5), [(0, [self.pair(5), self.pair(9)])])
        self.checker.walk([(0, self.pair(2)), (2, self.pair(9))], 0, reverse=False)
        self.checker.walk([(1, self.pair(5))], 0, reverse=True)
        assert self.checker.checked == 7

    @pytest.mark.parametrize("got", [None, b"", b"other"])
    def test_a_wrong_value_fails(self, got: bytes | None) -> None:
        with pytest.raises(WrongAnswer):
            self.checker.chunk(self.chunk(GET, 2, 1), [(0, got)])
        with pytest.raises(WrongAnswer):
            self.checker.chunk(self.chunk(GET, 2, 1), [(0, got)], exact=False)

    def test_a_value_that_should_be_gone_fails(self) -> None:
        with pytest.raises(WrongAnswer):
            self.checker.chunk(self.chunk(GET, 3, 0), [(0, self.values.one(3, 1))])

    def test_a_bad_scan_fails(self) -> None:
        for got in ([self.pair(9)], [self.pair(5)], [self.pair(9), self.pair(5)], [(b"%016d" % 5, b"x")]):
            with pytest.raises(WrongAnswer):
                self.checker.chunk(self.chunk(SCAN, 3, 0, 5), [(0, got)])

    def test_a_bad_walk_fails(self) -> None:
        with pytest.raises(WrongAnswer):
            self.checker.walk([(1, self.pair(9))], 0, reverse=False)
