"""What the standalone measurements share: filter_kernel, filter_tree and counters_cost."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
Show = Callable[[Figures], None]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def print_figures(figures: Figures, as_json: bool, show: Show) -> None:
    if as_json:
        json.dump(figures, sys.stdout, indent=1)
        print()
    else:
        show(figures)


def run_in_scratch(
    description: str | None,
    measure: Callable[..., Figures],
    show: Show,
    argv: list[str] | None,
    **counts: int,
) -> None:
    """Call `measure(folder, **counts)` with a temporary folder. Each of `counts` is a flag with its default."""
    parser = make_parser(description)
    for name, default in counts.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"({default})")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(Path(scratch), **{name: getattr(arguments, name) for name in counts})
    print_figures(figures, arguments.json, show)


def thread_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def best_in_turns(measure: Mapping[str, Callable[[int], float]], portions: int, rounds: int) -> dict[str, float]:
    """Seconds of all portions for each of `measure`: the best of `rounds` per portion, taken in turns.

    Short portions and the best time keep the influence of other processes small.
    """
    best = {name: [math.inf] * portions for name in measure}
    order = list(measure)
    for _ in range(rounds):
        for portion in range(portions):
            for name in order:
                best[name][portion] = min(best[name][portion], measure[name](portion))
            order.reverse()
    return {name: sum(seconds) for name, seconds in best.items()}
