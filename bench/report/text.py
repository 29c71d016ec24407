"""Results as text: db_bench's result line and histogram, and aligned tables."""

from __future__ import annotations

from typing import Any

from ..native.latency import Histogram
from .summary import summarize

Table = tuple[list[str], list[list[str]]]  # header, rows


def result_line(result: dict[str, Any]) -> str:
    """`readrandom   :       2.104 micros/op 475285 ops/sec 0.421 seconds 200000 operations;  54.2 MB/s`"""
    micros = result["micros_per_op"]
    if micros is None:
        return f"{result['workload']:<12} :"
    line = (
        f"{result['workload']:<12} : {micros:11.3f} micros/op {result['ops_per_second']:.0f} ops/sec"
        f" {result['seconds']:.3f} seconds {result['ops']} operations;"
    )
    if result.get("mb_per_second"):
        line += f" {result['mb_per_second']:6.1f} MB/s"
    if result.get("found") is not None:
        line += f" ({result['found']} of {result['ops']} found)"
    writes = result["detail"].get("writes_per_second")
    if writes:
        line += f" (beside {writes:.0f} writes/sec)"
    rate = result["detail"].get("false_positive_rate")
    if rate is not None:
        line += f" (false positive rate {rate:.3%})"
    return line


def repeat_line(results: list[dict[str, Any]]) -> str:
    """Mean, spread and 95 % interval of the repeats of `name[X3]`."""
    speed = summarize([r["ops_per_second"] for r in results])
    return (
        f"{results[0]['workload']:<12} [AVG {speed.count} runs] : {speed.mean:.0f} (± {speed.half:.0f}, 95 %)"
        " ops/sec;"
        f" median {speed.median:.0f}, stdev {speed.stdev:.0f}, spread {speed.spread:.1%}"
    )


def histogram_text(result: dict[str, Any]) -> str:
    """db_bench's histogram, in microseconds, with one bucket per power of two."""
    latency = result.get("latency")
    if latency is None:
        return ""
    hist = Histogram.from_dict(latency["histogram"])
    lines = [
        "Microseconds per op:",
        f"Count: {hist.count} Average: {hist.mean / 1e3:.4f}  StdDev: {hist.stddev / 1e3:.2f}",
        f"Min: {hist.min / 1e3:.3f}  Median: {hist.percentile(50) / 1e3:.4f}  Max: {hist.max / 1e3:.3f}",
        "Percentiles: " + " ".join(f"P{p:g}: {hist.percentile(p) / 1e3:.3f}" for p in (50, 75, 99, 99.9, 99.99)),
        "-" * 54,
    ]
    seen = 0
    for low, high, count in _powers(hist.buckets()):
        seen += count
        share, total = 100 * count / hist.count, 100 * seen / hist.count
        bar = "#" * round(share / 5)
        lines.append(f"[ {low / 1e3:10.3f}, {high / 1e3:10.3f} ) {count:9d} {share:7.3f}% {total:7.3f}% {bar}")
    return "\n".join(lines)


def _powers(buckets: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merge buckets to powers of two."""
    merged: dict[int, int] = {}
    for low, _, count in buckets:
        merged[low.bit_length()] = merged.get(low.bit_length(), 0) + count
    return [((1 << bits) >> 1, 1 << bits, count) for bits, count in merged.items()]


def align(header: list[str], rows: list[list[str]]) -> str:
    """A table in aligned columns."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" for _ in header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
