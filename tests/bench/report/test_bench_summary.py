"""Summaries, ratios and the comparison with an earlier result."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_bench.report.compare import changes, parse_percent, regressions
from lsmkv_bench.report.results import Results
from lsmkv_bench.report.summary import ratio, ratio_range, rows, summarize
from lsmkv_bench.settings import Settings


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=20))
def test_summary(values: list[float]) -> None:
    summary = summarize(values)
    assert summary.median == statistics.median(values)
    assert summary.mean == pytest.approx(statistics.fmean(values))
    assert summary.half >= 1.9 * summary.stdev / len(values) ** 0.5
    assert (summary.low, summary.high) == (min(values), max(values))


def test_interval_of_three_values() -> None:
    summary = summarize([1.0, 2.0, 3.0])
    assert summary.half == pytest.approx(4.303 / 3**0.5)
    assert summarize([5.0]).half == 0


def result(workload: str, engine: str, micros: float, run: int = 0) -> dict[str, Any]:
    return {"workload": workload, "engine": engine, "run": run, "micros_per_op": micros, "threads": 1}


def results_of(micros: dict[str, float]) -> Results:
    """Results of one workload, `w`, and of the warm-up, which is hidden."""
    results = [result(workload, engine, us) for engine, us in micros.items() for workload in ("w", "warm-up")]
    return Results(Settings(engines=("lsmkv", "lmdb")), results, dict.fromkeys(micros, "1"))


def test_hidden_steps_have_no_row() -> None:
    assert list(rows(results_of({"lsmkv": 1.0}).results)) == ["w"]


def test_ratio_is_the_median_of_the_ratios_of_each_run() -> None:
    """The machine was half as fast in the second run, which does not change its ratio."""
    times = {"lsmkv": (1.0, 2.0, 1.0), "lmdb": (3.0, 6.6, 2.5)}
    results = [
        result("w", engine, micros, run) for engine, by_run in times.items() for run, micros in enumerate(by_run)
    ]
    row = rows(results)["w"]
    assert ratio(row, "lmdb", "lsmkv") == 3.0
    assert ratio_range(row, "lmdb", "lsmkv") == (2.5, 3.3)
    assert ratio(row, "dict", "lsmkv") is None and ratio_range(row, "dict", "lsmkv") is None


def test_regressions_are_those_of_the_first_engine() -> None:
    old, new = results_of({"lsmkv": 1.0, "lmdb": 1.0}), results_of({"lsmkv": 1.2, "lmdb": 9.0})
    found = changes(old, new)
    assert [(c.engine, round(c.slower, 3)) for c in found] == [("lsmkv", 0.2), ("lmdb", 8.0)]
    assert [c.engine for c in regressions(found, new, 0.1)] == ["lsmkv"]
    assert regressions(found, new, 0.25) == []
    assert changes(results_of({"dict": 1.0}), new) == []


def test_percent() -> None:
    assert (parse_percent("10%"), parse_percent("0.1")) == (0.1, 0.1)
    for text in ("ten", "-5%"):
        with pytest.raises(ValueError):
            parse_percent(text)
