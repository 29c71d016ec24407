"""Result lines, histograms, tables, the Markdown page."""

from __future__ import annotations

from lsmkv_bench.native.latency import Histogram
from lsmkv_bench.report.page import describe_values
from lsmkv_bench.report.text import align, histogram_text, markdown, result_line
from lsmkv_bench.settings import Settings


def test_tables() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert align(["a", "bb"], [["111", "2"]]) == "a    bb\n---  --\n111  2"


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


def test_page_describes_the_values() -> None:
    cases = {
        "100 bytes (half compressible)": Settings(),
        "8 bytes (compressible to 20%)": Settings(value_size=8, compression_ratio=0.2),
        "1 to 9 bytes (half compressible)": Settings(
            value_size_distribution="uniform", value_size_min=1, value_size_max=9
        ),
        "pareto sizes (half compressible)": Settings(value_size_distribution="pareto"),
    }
    for text, settings in cases.items():
        assert describe_values(settings) == text
