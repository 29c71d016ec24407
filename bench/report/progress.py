"""Output during a run: result lines, and a progress bar on a terminal."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from .text import histogram_text, repeat_line, result_line


class ResultLines:
    """Prints each result."""

    def __init__(self, runs: int, histogram: bool) -> None:
        self.runs = runs
        self.histogram = histogram
        self.repeats: list[dict[str, Any]] = []
        self.several = False

    def prefix(self, event: dict[str, Any]) -> str:
        """The engine's name, if there are several."""
        return f"{event['engine']:<8} " if self.several else ""

    def print(self, text: str) -> None:
        print(text, flush=True)

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "run":
            self.flush_repeats()
            self.several = len(event["engines"]) > 1
            self.print(f"-- run {event['run'] + 1} of {self.runs}: {', '.join(event['engines'])}")
        elif kind == "start" and event["attempt"] == 0:
            self.flush_repeats()
        elif kind == "result":
            self.result(event["result"])
        elif kind == "skip":
            self.print(f"{self.prefix(event)}{event['workload']:<12} : skipped, {event['message']}")
        elif kind == "note":
            self.print(f"{self.prefix(event)}{event['workload']:<12} : {event['message']}")

    def result(self, result: dict[str, Any]) -> None:
        self.repeats.append(result)
        self.print(self.prefix(result) + result_line(result))
        for line in result["lines"]:
            self.print(f"  {line}")
        if self.histogram and (text := histogram_text(result)):
            self.print(text)

    def flush_repeats(self) -> None:
        if len(self.repeats) > 1 and self.repeats[0]["ops_per_second"]:
            self.print(self.prefix(self.repeats[0]) + repeat_line(self.repeats))
        self.repeats = []

    def close(self) -> None:
        self.flush_repeats()


class ProgressBar(ResultLines):
    """Adds a progress bar with operations per second, P99 and stalls."""

    def __init__(self, runs: int, histogram: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__(runs, histogram)
        self.progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            transient=True,
        )
        self.task = self.progress.add_task("starting", total=None, speed="")
        self.progress.start()

    def print(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "start":
            self.progress.reset(self.task, description=f"{event['engine']} {event['workload']}", total=None, speed="")
        elif event["event"] == "progress":
            self.progress.update(self.task, completed=event["done"], total=event["total"], speed=_speed(event))

    def close(self) -> None:
        super().close()
        self.progress.stop()


def _speed(event: dict[str, Any]) -> str:
    speed = event["done"] / event["seconds"] if event["seconds"] else 0.0
    text = f"{speed:,.0f} ops/s"
    if "p99" in event:
        text += f"  p99 {event['p99'] / 1e3:.1f} us  {event['stalls']} stalls"
    return text


def listener(runs: int, histogram: bool) -> ResultLines:
    shows_bar = sys.stdout.isatty() and find_spec("rich") is not None
    return ProgressBar(runs, histogram) if shows_bar else ResultLines(runs, histogram)
