"""`filter fpr`: measure false positive rates."""

from __future__ import annotations

import math
from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.filter.tables import TableRef, with_tables
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, LEVEL, Column, fixed, num, percent
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.table import filter_state

Z = 3.29  # 99.9 %
TOLERANCE = 0.05
BLOCK_BITS = 512
COLUMNS = [
    LEVEL,
    FILE,
    fixed("bits/key", "bits_per_key", 2, rank=1),
    percent("expected", "expected_fpr", 3),
    percent("measured", "measured_fpr", 3),
    percent("from", "low", 3),
    percent("to", "high", 3),
    num("probes", "probes", units.count, rank=2),
    Column("state", "verdict"),
]


def wilson_interval(positives: int, n: int) -> tuple[float, float]:
    """Return the 99.9 % confidence interval of the rate, given `positives` of `n`."""
    rate, z2 = positives / n, Z * Z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def load_deviation(keys: int, blocks: int, k: int) -> float:
    """Return four standard deviations of a filter's rate due to uneven block load.

    Keys fall on blocks at random (Poisson), and a block's rate grows steeply with its load. With few blocks the
    rate of one filter may be far from the mean.
    """
    load = keys / blocks
    weight, mean, square = math.exp(-load), 0.0, 0.0
    for n in range(1, int(load + 12 * math.sqrt(load) + 20)):
        weight *= load / n
        rate = (1 - (1 - 1 / BLOCK_BITS) ** (k * n)) ** k
        mean += weight * rate
        square += weight * rate * rate
    return 4 * math.sqrt(max(0.0, square - mean * mean) / blocks)


def measure(ref: TableRef, probes: int | None, seed: int) -> dict[str, Any]:
    with ref.open() as table:
        found = table.filter
        row = {"file": ref.name, "level": ref.level, "bits_per_key": found["bits_per_key"]}
        expected = found["expected_fpr"]
        if not found["usable"]:
            blank = dict.fromkeys(("expected_fpr", "probes", "measured_fpr", "low", "high"))
            return row | blank | {"verdict": filter_state(found)}
        # Enough for an interval of about 5 % of the rate, but at most a second or two.
        n = probes or int(min(1e7, max(1e5, 4500 / max(expected, 1e-9))))
        positives = table.positives(n, seed)
    # The slots of a fuse filter are equally likely.
    deviation = 0.0 if found["kind"] == "fuse" else load_deviation(found["keys"], found["blocks"], found["k"])
    low, high = wilson_interval(positives, n)
    if low > expected * (1 + TOLERANCE) + deviation:
        verdict = "worse"
    elif high < expected * (1 - TOLERANCE) - deviation:
        verdict = "better"
    else:
        verdict = "as expected"
    return row | {
        "expected_fpr": expected,
        "probes": n,
        "measured_fpr": positives / n,
        "low": low,
        "high": high,
        "verdict": verdict,
    }


@declare("filter fpr", example="lsmkv-tool filter fpr mydb", table=True)
@path_argument("path", "DB|FILE")
@click.option("--probes", type=click.IntRange(1000, 10**10), help="Probes per table; by default enough for +-5 %.")
@click.option(
    "--seed", type=click.IntRange(0, 2**64 - 1), default=1, show_default=True, help="Seed of the random keys."
)
@params.KEYSPACE
def fpr(out: Output, path: str, probes: int | None, seed: int, keyspace: str) -> None:
    """Measure false positive rates with random absent keys, and compare them with the expected rates.

    `from` and `to` are the 99.9 % confidence interval. `worse` means that the whole interval is more than 5 %
    above the expected rate, plus the deviation that a small filter's uneven load explains. It sets exit code 1.
    """

    def measure_all(tables: list[TableRef], _: Tree | None) -> list[dict[str, Any]]:
        with Progress("probing", len(tables)) as progress:
            return [measure(ref, probes, seed) for ref in progress.over(tables)]

    rows = with_tables(path, keyspace, measure_all)
    bad = any(row["verdict"] in ("worse", "damaged") for row in rows)
    out.rows(rows, COLUMNS, empty="no tables", finding=bad)
