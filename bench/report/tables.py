"""Results as text: db_bench's line, its histogram, and the tables."""

from __future__ import annotations

from typing import Any

from ..engines.base import human
from ..native.latency import Histogram
from ..runner import Gathered
from ..settings import Settings
from ..workloads.suites import HIDDEN
from .interval import summarize
from .summary import Cell, cells, ratio, ratio_range
from .targets import TARGETS


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
        line += f" ({writes:.0f} writes/sec meanwhile)"
    rate = result["detail"].get("false_positive_rate")
    if rate is not None:
        line += f" (false positive rate {rate:.3%})"
    return line


def repeat_line(results: list[dict[str, Any]]) -> str:
    """Mean, spread and 95 % interval over the repeats of `name[X3]`."""
    speed = summarize([r["ops_per_second"] for r in results])
    return (
        f"{results[0]['workload']:<12} [AVG {speed.count} runs] : {speed.mean:.0f} (± {speed.half:.0f}, 95 %)"
        " ops/sec;"
        f" median {speed.median:.0f}, stdev {speed.stdev:.0f}, spread {speed.spread:.1%}"
    )


def histogram_text(result: dict[str, Any]) -> str:
    """db_bench's histogram, in microseconds, buckets joined to powers of two."""
    latency = result.get("latency")
    if latency is None:
        return ""
    hist = Histogram.from_dict(latency["histogram"])
    lines = [
        "Microseconds per op:",
        f"Count: {hist.count} Average: {hist.mean / 1e3:.4f}  StdDev: {hist.stddev / 1e3:.2f}",
        f"Min: {hist.min / 1e3:.3f}  Median: {hist.percentile(50) / 1e3:.4f}  Max: {hist.max / 1e3:.3f}",
        "Percentiles: "
        + " ".join(f"P{p:g}: {hist.percentile(p) / 1e3:.3f}" for p in (50, 75, 99, 99.9, 99.99)),
        "-" * 54,
    ]
    seen = 0
    for low, high, count in _powers(hist.buckets()):
        seen += count
        share, total = 100 * count / hist.count, 100 * seen / hist.count
        bar = "#" * round(share / 5)
        lines.append(
            f"[ {low / 1e3:10.3f}, {high / 1e3:10.3f} ) {count:9d} {share:7.3f}% {total:7.3f}% {bar}"
        )
    return "\n".join(lines)


def _powers(buckets: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    joined: dict[int, int] = {}
    for low, _, count in buckets:
        joined[low.bit_length()] = joined.get(low.bit_length(), 0) + count
    return [((1 << bits) >> 1, 1 << bits, count) for bits, count in joined.items()]


def engine_order(gathered: Gathered) -> list[str]:
    """As asked for, the first one being the one that the others are compared with."""
    return [name for name in gathered.settings.engines if name in gathered.versions]


def peers_rows(gathered: Gathered) -> tuple[list[str], list[list[str]]]:
    """The full table: one line per workload and engine."""
    header = [
        "workload",
        "engine",
        "ops/s",
        "us/op",
        "ratio",
        "p50",
        "p99",
        "p99.9",
        "RSS",
        "disk",
        "W-amp",
        "CPU s",
    ]
    rows: list[list[str]] = []
    order = engine_order(gathered)
    for workload, row in cells(gathered.results).items():
        if workload in HIDDEN:
            continue
        for engine in order:
            if engine in row:
                times = ratio(row, engine, order[0])
                rows.append([workload, *_peer(row[engine], times if engine != order[0] else None)])
                workload = ""
    return header, rows


def _peer(cell: Cell, times: float | None) -> list[str]:
    r = cell.resources
    return [
        cell.engine,
        f"{cell.ops_per_second:,.0f}" if cell.ops_per_second >= 10 else f"{cell.ops_per_second:.3g}",
        f"{cell.micros.median:.3f}",
        f"{times:.2f}x" if times is not None else "",
        *(f"{cell.latency[p] / 1e3:.2f}" if p in cell.latency else "-" for p in ("p50", "p99", "p99.9")),
        human(r["rss_peak"]),
        human(r["disk"]),
        f"{r['write_amplification']:.2f}" if r["write_amplification"] is not None else "-",
        f"{r['cpu_seconds']:.2f}" if r["cpu_seconds"] is not None else "-",
    ]


def ratio_rows(gathered: Gathered, by: str = "wall") -> tuple[list[str], list[list[str]]]:
    """The short table: our time, and each peer's over ours with its range and any target."""
    order = engine_order(gathered)
    ours, peers = order[0], order[1:]
    header = ["workload", f"{ours} {'CPU ' if by == 'cpu' else ''}us/op", *peers]
    rows = []
    for workload, row in cells(gathered.results, by).items():
        if workload in HIDDEN or ours not in row:
            continue
        rows.append(
            [
                workload,
                f"{row[ours].micros.median:.3f}",
                *(_ratio(row, peer, ours, workload) for peer in peers),
            ]
        )
    return header, rows


def _ratio(row: dict[str, Cell], peer: str, ours: str, workload: str) -> str:
    times, span = ratio(row, peer, ours), ratio_range(row, peer, ours)
    if times is None:
        return "-"
    text = f"{times:.2f}"
    if span is not None and row[ours].micros.count > 1:
        text += f" [{span[0]:.2f}..{span[1]:.2f}]"
    target = TARGETS.get(workload, {}).get(peer) if ours == "lsmkv" else None
    if target is not None:
        text += f" {'ok' if times >= target else 'MISS'} ({target:g})"
    return text


def misses(gathered: Gathered) -> list[str]:
    """The targets not reached, one line each."""
    table = cells(gathered.results)
    lines = []
    for workload, wanted in TARGETS.items():
        for peer, target in wanted.items():
            times = ratio(table.get(workload, {}), peer, "lsmkv")
            if times is not None and times < target:
                lines.append(f"{workload}: {times:.2f}x of {peer}, target {target:g}x")
    return lines


def mapping_rows(gathered: Gathered) -> tuple[list[str], list[list[str]]]:
    """How each engine was given the same budget and durability."""
    engines = [name for name in engine_order(gathered) if name in gathered.mappings]
    keys = list(dict.fromkeys(key for name in engines for key in gathered.mappings[name]))
    rows = [[key, *(str(gathered.mappings[name].get(key, "-")) for name in engines)] for key in keys]
    return ["setting", *engines], rows


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" for _ in header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def plain(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _run_words(s: Settings) -> str:
    return "a single run" if s.runs == 1 else f"{s.runs} interleaved runs, medians"


def _value_words(s: Settings) -> str:
    kind = s.value_size_distribution
    size = {
        "fixed": f"{s.value_size} bytes",
        "uniform": f"{s.value_size_min} to {s.value_size_max} bytes",
        "normal": f"{s.value_size_min} to {s.value_size_max} bytes, mostly in the middle",
    }.get(kind, f"sizes by {kind}")
    share = "half compressible" if s.compression_ratio == 0.5 else f"compressible to {s.compression_ratio:.0%}"
    return f"{size} ({share})"


def markdown_page(gathered: Gathered) -> str:
    """The page that is committed beside the JSON file."""
    m, s = gathered.machine, gathered.settings
    versions = ", ".join(f"{name} {version}" for name, version in gathered.versions.items())
    intro = [
        f"# Benchmark, {m['date'][:10]}",
        "",
        f"- command: `{gathered.command}`",
        f"- machine: {m['cpu']}, {m['cores']} cores, {human(m['memory'])}, {m['system']}, {m['filesystem']}",
        f"- versions: Python {m['python']}, {versions}; commit {m['commit'] or 'unknown'}",
        f"- {s.num:,} keys of {s.key_size} bytes, values of {_value_words(s)},"
        f" seed {s.seed}, {_run_words(s)}; load average at the start {m['load']:.1f}",
        "",
        "## Ratios",
        "",
        "A peer's time per operation over ours (above 1 we are faster), with its range over the runs.",
        "",
    ]
    parts = ["\n".join(intro) + markdown(*ratio_rows(gathered))]
    parts.append(
        "## Ratios of processor time\n\nThe same by what the calling thread spent on a processor: without its"
        " waiting and without time lost to other processes.\n\n" + markdown(*ratio_rows(gathered, "cpu"))
    )
    parts.append(
        "## All figures\n\nLatencies in microseconds per call. RSS is the peak during the workload, of"
        " the whole"
        " process. Write amplification is cumulative since the database was made.\n\n"
        + markdown(*peers_rows(gathered))
    )
    parts.append("## The same budget for all\n\n" + markdown(*mapping_rows(gathered)))
    return "\n\n".join(parts) + "\n"
