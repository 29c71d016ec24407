"""Plots of a run in one picture: throughput over time, ratios, latency percentiles. Needs matplotlib."""

from __future__ import annotations

import itertools
import os
from typing import Any

from ..native.latency import Histogram
from ..workloads.suites import HIDDEN
from .results import Results
from .summary import ratio, rows


def check_format(path: str) -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    kind, known = os.path.splitext(path)[1][1:].lower(), FigureCanvasBase.get_supported_filetypes()
    if kind and kind not in known:
        raise ValueError(f"--plot cannot write {kind!r}; it can write {', '.join(sorted(known))}")


def save_plot(results: Results, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(11, 15), constrained_layout=True)
    colours = {name: f"C{i}" for i, name in enumerate(results.engines)}
    _throughput(axes[0], results, colours)
    _ratios(axes[1], results, colours)
    _latency(axes[2], results, colours)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _longest(results: Results) -> str | None:
    """The workload with the longest time series."""
    points: dict[str, int] = {}
    for result in results.results:
        points[result["workload"]] = points.get(result["workload"], 0) + len(result.get("series") or [])
    best = max(points, key=points.__getitem__, default=None)
    return best if best is not None and points[best] else None


def _throughput(axis: Any, results: Results, colours: dict[str, str]) -> None:
    workload = _longest(results)
    axis.set_title(f"throughput over time: {workload or 'no run was long enough'}")
    for result in results.results:
        first = result["run"] == 0 and result["repeat"] == 0
        if result["workload"] != workload or not first or len(result.get("series") or []) < 2:
            continue
        series = [(0.0, 0), *map(tuple, result["series"])]
        steps = list(itertools.pairwise(series))
        times = [b[0] for a, b in steps if b[0] > a[0]]
        speed = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in steps if b[0] > a[0]]
        axis.plot(times, speed, label=result["engine"], color=colours.get(result["engine"]))
    axis.set(xlabel="seconds of work", ylabel="operations per second", ylim=(0, None))
    if axis.lines:
        axis.legend()


def _ratios(axis: Any, results: Results, colours: dict[str, str]) -> None:
    ours, *peers = results.engines
    table = {name: row for name, row in rows(results.results).items() if ours in row}
    width = 0.8 / max(1, len(peers))
    for i, peer in enumerate(peers):
        # Bars start at 1, where both are equal.
        heights = [(ratio(row, peer, ours) or 1) - 1 for row in table.values()]
        places = [x + i * width for x in range(len(table))]
        axis.bar(places, heights, width, bottom=1, label=peer, color=colours[peer])
    axis.axhline(1, color="black", linewidth=0.8)
    middle = width * (len(peers) - 1) / 2
    axis.set_xticks([x + middle for x in range(len(table))], list(table), rotation=60, ha="right")
    axis.set(title=f"time per operation relative to {ours} (above 1: {ours} is faster)", yscale="log")
    for part in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        part(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "125" else "")
    if peers:
        axis.legend()
    else:
        axis.set_title(f"ratios: no engine to compare with {ours}")


def _latency(axis: Any, results: Results, colours: dict[str, str]) -> None:
    names = {result["workload"] for result in results.results if "latency" in result} - HIDDEN
    workload = "readrandom" if "readrandom" in names else min(names, default=None)
    axis.set_title(f"latency: {workload or 'not recorded'}")
    for result in results.results:
        if (
            result["workload"] != workload
            or result["run"] + result["repeat"] != 0
            or "histogram" not in result.get("latency", {})
        ):
            continue
        hist = Histogram.from_dict(result["latency"]["histogram"])
        tail = [10 ** (-i / 10) for i in range(51)]
        axis.plot(
            [1 / t for t in tail],
            [hist.percentile(100 * (1 - t)) / 1e3 for t in tail],
            label=result["engine"],
            color=colours.get(result["engine"]),
        )
    axis.set(xscale="log", yscale="log", ylabel="microseconds")
    axis.set_xticks([1, 10, 100, 1000, 1e4, 1e5], ["min", "P90", "P99", "P99.9", "P99.99", "P99.999"])
    if axis.lines:
        axis.legend()
