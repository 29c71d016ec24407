"""Charts of a run in one picture: ratios or times, throughput over time, latency percentiles. Needs matplotlib."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

from ..native.latency import Histogram
from ..workloads.suites import HIDDEN
from .results import Results
from .summary import Row, ratio, rows

Chart = Callable[[Any, Results, dict[str, str]], None]

SCALES = ((1e6, "s"), (1e3, "ms"), (1, "us"), (1e-3, "ns"))


def check_format(path: str) -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    kind, known = os.path.splitext(path)[1][1:].lower(), FigureCanvasBase.get_supported_filetypes()
    if kind and kind not in known:
        raise ValueError(f"--plot cannot write {kind!r}; it can write {', '.join(sorted(known))}")


def save_plot(results: Results, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = charts(results)
    if not shown:
        return  # nothing was measured; the command has said why
    heights = [3.4 if chart is not _bars else 1.4 + 0.3 * _bar_count(results) for chart in shown]
    figure, axes = pyplot.subplots(
        len(shown), 1, figsize=(9, sum(heights)), height_ratios=heights, constrained_layout=True, squeeze=False
    )
    colours = {name: f"C{i}" for i, name in enumerate(results.engines)}
    for chart, (axis,) in zip(shown, axes, strict=True):
        chart(axis, results, colours)
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def charts(results: Results) -> list[Chart]:
    """The charts that have something to show. A short run has no throughput over time."""
    wanted: list[tuple[Chart, bool]] = [
        (_bars, bool(_measured(results))),
        (_throughput, _longest(results) is not None),
        (_latency, _recorded(results) is not None),
    ]
    return [chart for chart, found in wanted if found]


def _measured(results: Results) -> dict[str, Row]:
    """The workloads that the first engine ran."""
    return {name: row for name, row in rows(results.results).items() if {*results.engines[:1]} & row.keys()}


def _bar_count(results: Results) -> int:
    return len(_measured(results)) * max(1, len(results.engines) - 1)


def _series(result: dict[str, Any]) -> list[tuple[float, float]]:
    """The throughput over time of a first run, as (seconds, operations per second); empty if it was too short."""
    given = [tuple(point) for point in result.get("series") or []]
    if len(given) < 2 or result["run"] or result["repeat"]:
        return []
    steps = itertools.pairwise([(0.0, 0), *given])
    return [(b[0], (b[1] - a[1]) / (b[0] - a[0])) for a, b in steps if b[0] > a[0]]


def _longest(results: Results) -> str | None:
    """The workload with the longest time series."""
    points: dict[str, int] = {}
    for result in results.results:
        points[result["workload"]] = points.get(result["workload"], 0) + len(_series(result))
    best = max(points, key=points.__getitem__, default=None)
    return best if best is not None and points[best] else None


def _throughput(axis: Any, results: Results, colours: dict[str, str]) -> None:
    workload = _longest(results)
    axis.set_title(f"throughput over time: {workload}", loc="left")
    for result in results.results:
        if result["workload"] == workload and (series := _series(result)):
            axis.plot(*zip(*series, strict=True), label=result["engine"], color=colours.get(result["engine"]))
    axis.set(xlabel="seconds of work", ylabel="operations per second", ylim=(0, None))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.legend()


def _bars(axis: Any, results: Results, colours: dict[str, str]) -> None:
    """Ratios to the first engine, or its times if it ran alone."""
    ours, *peers = results.engines
    table = _measured(results)
    width = 0.8 / max(1, len(peers))
    start = 1.0 if peers else 0.0  # ratios start where both are equal
    for i, name in enumerate(peers or [ours]):
        values = [ratio(row, name, ours) if peers else row[ours].micros.median for row in table.values()]
        places = [y + i * width for y in range(len(table))]
        ends = [start if value is None else value for value in values]
        axis.barh(places, [end - start for end in ends], width, left=start, label=name, color=colours[name])
        for y, value in zip(places, values, strict=True):
            if value is not None:
                beyond = value < start
                gap, side = (-4, "right") if beyond else (4, "left")
                axis.annotate(
                    f"{value:.3g}", (value, y), (gap, 0), textcoords="offset points", va="center", ha=side, fontsize=8
                )
    middle = width * (max(1, len(peers)) - 1) / 2
    axis.set_yticks([y + middle for y in range(len(table))], list(table))
    axis.invert_yaxis()
    axis.margins(x=0.12)
    if not peers:
        axis.set_title(f"time per operation of {ours}", loc="left")
        axis.set_xlabel("microseconds")
        return
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_title(f"time per operation divided by that of {ours} (above 1: {ours} is faster)", loc="left")
    axis.set_xscale("log")
    for part in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
        part(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "125" else "")
    axis.legend()


def _recorded(results: Results) -> str | None:
    """The workload whose latencies are drawn."""
    names = {
        result["workload"]
        for result in results.results
        if "histogram" in result.get("latency", {}) and result["run"] + result["repeat"] == 0
    } - HIDDEN
    return "readrandom" if "readrandom" in names else min(names, default=None)


def _latency(axis: Any, results: Results, colours: dict[str, str]) -> None:
    workload = _recorded(results)
    axis.set_title(f"latency of {workload}: so many of the operations took at most this long", loc="left")
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
    axis.set(xscale="log", yscale="log")
    axis.set_xticks([1, 10, 100, 1000, 1e4, 1e5], ["min", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"])
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(lambda us, _: next(f"{us / size:g} {unit}" for size, unit in SCALES if us >= size))
    axis.legend()
