"""Measures the filters for Python: CPU time per key of batches from lists and columns, and what a second thread adds.

    python -m lsmkv_bench.filter_family [--num 1000000]

Needs numpy. Each figure is the best of several runs that take turns.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from typing import Any

import xxhash

import lsmkv

ROUNDS = 7


def cpu(function: Callable[[], Any]) -> float:
    start = time.thread_time()
    function()
    return time.thread_time() - start


def measure(num: int) -> list[tuple[str, dict[str, float]]]:
    import numpy

    column = numpy.random.default_rng(1).integers(0, 256, (num, 16), dtype=numpy.uint8)
    rows = [row.tobytes() for row in column]
    makes: dict[str, Callable[[], Any]] = {
        "BlockedBloom": lambda: lsmkv.BlockedBloom(num, prefault=True),
        "ScalableBloom, one layer": lambda: lsmkv.ScalableBloom(2 * num),
        "ScalableBloom, grown from 1000": lambda: lsmkv.ScalableBloom(1000),
        "CountingBloom": lambda: lsmkv.CountingBloom(num),
        "RotatingBloom": lambda: lsmkv.RotatingBloom(num, window=3600),
    }
    results = []
    for name, make in makes.items():
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for kind, keys in (("list", rows), ("column", column)):
                made = make()
                for call in ("add_many", "test_many"):
                    took = cpu(lambda made=made, call=call, keys=keys: getattr(made, call)(keys))  # type: ignore[misc]
                    label = f"{call} {kind}"
                    best[label] = min(best.get(label, 1e9), took / num * 1e9)
        results.append((name, best))
    return results


def add(bloom: lsmkv.BlockedBloom, part: Any, spent: list[float]) -> None:
    spent.append(cpu(lambda: bloom.add_many(part)))


def two_threads(num: int) -> tuple[float, float]:
    """How many times as many keys two threads add as one: by the clock, and by what they cost the CPUs."""
    import numpy

    columns = [numpy.random.default_rng(seed).integers(0, 256, (num, 16), dtype=numpy.uint8) for seed in range(2)]
    one_wall = two_wall = one_cpu = two_cpu = float("inf")
    for _ in range(3 * ROUNDS):
        for parts in (columns[:1], columns):
            bloom = lsmkv.BlockedBloom(num, prefault=True)
            spent: list[float] = []
            threads = [threading.Thread(target=add, args=(bloom, part, spent)) for part in parts]
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wall = time.perf_counter() - start
            if len(parts) == 1:
                one_wall, one_cpu = min(one_wall, wall), min(one_cpu, *spent)
            else:
                two_wall, two_cpu = min(two_wall, wall), min(two_cpu, sum(spent))
    return 2 * one_wall / two_wall, 2 * one_cpu / two_cpu * 2


def static(num: int) -> list[str]:
    """FuseFilter beside BlockedBloom of the same rate and, where it is installed, pyfusefilter."""
    rows = [b"key%013d" % n for n in range(2 * num)]
    present, absent = rows[:num], rows[num:]
    lines = []
    for width in (4, 8, 12):
        took = build = float("inf")
        for _ in range(ROUNDS):
            start = time.thread_time()
            made = lsmkv.FuseFilter(present, width)
            build = min(build, (time.thread_time() - start) / num * 1e9)
            took = min(took, cpu(lambda made=made: made.test_many(absent)) / num * 1e9)  # type: ignore[misc]
        wrong = sum(made.test_many(absent)) / num
        lines.append(
            f"FuseFilter of {width} bits: {made.bits_per_key:.2f} bits per key, rate {100 * wrong:.4f} %, "
            f"build {build:.1f} ns, test_many {took:.1f} ns per key"
        )
    try:
        from pyfusefilter import Fuse8, pyfusefilter
    except ImportError:
        return lines
    # Its own function passes a str to xxhash, which takes bytes from version 4 on.
    pyfusefilter.hash = xxhash.xxh64_intdigest
    ours = lsmkv.FuseFilter(present)
    theirs = Fuse8(present)
    best = [float("inf")] * 3
    calls: list[Callable[[], Any]] = [
        lambda: ours.test_many(absent),
        lambda: [key in ours for key in absent],
        lambda: [key in theirs for key in absent],
    ]
    for _ in range(3):
        best = [min(old, cpu(call) / num * 1e9) for old, call in zip(best, calls, strict=True)]
    return [*lines, "test_many {:.1f} ns, a loop {:.1f} ns, a loop over pyfusefilter {:.1f} ns per key".format(*best)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=1_000_000, help="keys (default 1000000)")
    num = parser.parse_args().num
    columns = ["add_many list", "add_many column", "test_many list", "test_many column"]
    print("| filter | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, best in measure(num):
        print(f"| {name} | " + " | ".join(f"{best[column]:.1f}" for column in columns) + " |")
    by_clock, by_cpu = two_threads(num)
    print("\n" + "\n".join(static(num)))
    print(f"\ntwo threads add {by_clock:.2f}x the keys of one (by CPU time {by_cpu:.2f}x)")


if __name__ == "__main__":
    main()
