"""The tables of a run: ratios, all figures, each engine's settings, missed targets."""

from __future__ import annotations

from ..units import format_size
from .results import Results
from .summary import Cell, Row, ratio, ratio_range, rows
from .targets import TARGETS
from .text import Table

# "user" is the caller's CPU time outside the kernel, with the runner's own work: first touches of memory, whose price
# chance decides in a virtual machine, are not in it.
TIMES = {"wall": "", "cpu": "CPU ", "user": "user CPU "}


def ratio_table(results: Results, measure: str = "wall") -> Table:
    """Our time, and each peer's time relative to it with range and target."""
    ours, *peers = results.engines
    header = ["workload", f"{ours} {TIMES[measure]}us/op", *peers]
    return header, [
        [workload, f"{row[ours].micros.median:.3f}", *(_ratio(row, peer, ours, workload) for peer in peers)]
        for workload, row in rows(results.results, measure).items()
        if ours in row
    ]


def _ratio(row: Row, peer: str, ours: str, workload: str) -> str:
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


def missed_targets(results: Results) -> list[str]:
    table = rows(results.results)
    lines = []
    for workload, targets in TARGETS.items():
        for peer, target in targets.items():
            times = ratio(table.get(workload, {}), peer, "lsmkv")
            if times is not None and times < target:
                lines.append(f"{workload}: {times:.2f}x of {peer}, target {target:g}x")
    return lines


def figure_table(results: Results) -> Table:
    """All figures: one line per workload and engine."""
    header = ["workload", "engine", "ops/s", "us/op", "ratio", "p50", "p99", "p99.9", "RSS", "disk", "W-amp", "CPU s"]
    lines: list[list[str]] = []
    ours = results.engines[0]
    for workload, row in rows(results.results).items():
        for engine in results.engines:
            if engine in row:
                times = ratio(row, engine, ours) if engine != ours else None
                lines.append([workload, *_figures(row[engine], times)])
                workload = ""
    return header, lines


def _figures(cell: Cell, times: float | None) -> list[str]:
    r = cell.resources
    return [
        cell.engine,
        f"{cell.ops_per_second:,.0f}" if cell.ops_per_second >= 10 else f"{cell.ops_per_second:.3g}",
        f"{cell.micros.median:.3f}",
        f"{times:.2f}x" if times is not None else "",
        *(f"{cell.latency[p] / 1e3:.2f}" if p in cell.latency else "-" for p in ("p50", "p99", "p99.9")),
        format_size(r["rss_peak"]),
        format_size(r["disk"]),
        f"{r['write_amplification']:.2f}" if r["write_amplification"] is not None else "-",
        f"{r['cpu_seconds']:.2f}" if r["cpu_seconds"] is not None else "-",
    ]


def settings_table(results: Results) -> Table:
    """The common settings in the terms of each engine."""
    engines = [name for name in results.engines if name in results.mappings]
    keys = list(dict.fromkeys(key for name in engines for key in results.mappings[name]))
    lines = [[key, *(str(results.mappings[name].get(key, "-")) for name in engines)] for key in keys]
    return ["setting", *engines], lines
