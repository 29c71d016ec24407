"""`filter ls`, `info`, `probe`, `fpr`, `heat`: what the filters are and do."""

from __future__ import annotations

import math
import os
from typing import Any

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import stats_export as live
from lsmkv_tool.exits import CannotOpen, Finding, Usage, opening
from lsmkv_tool.filter.tables import Place, filter, over_tables
from lsmkv_tool.keys import KEY
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import heat_map as heat_map
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Column, Human, Output, num
from lsmkv_tool.render.progress import Progress

WHERE = {"name": "path", "metavar": "DB|FILE"}


def state_of(filter_: dict[str, Any]) -> str:
    if filter_["usable"]:
        return "ok"
    return "none" if filter_["problem"] == "absent" else "damaged"


def filter_row(place: Place, observed: dict[int, float], debts: dict[int, str]) -> dict[str, Any]:
    with place.opened() as table:
        found = table.filter
    return {
        "file": os.path.basename(place.path),
        "level": place.level,
        "state": state_of(found),
        "bits_per_key": found["bits_per_key"],
        "k": found["k"],
        "keys": found["keys"],
        "bytes": found["bytes"],
        "fill": found["fill"],
        "expected_fpr": found["expected_fpr"],
        "observed_fpr": observed.get(place.level) if place.level is not None else None,
        "built_for": found["level"],
        "debt": debts.get(place.number) if place.number is not None else None,
        "problem": found["problem"],
    }


LISTING = [
    num("level", "level", lambda level: f"L{level}"),
    Column("file", "file"),
    Column("state", "state"),
    num("bits/key", "bits_per_key", lambda bits: f"{bits:.2f}"),
    num("k", "k"),
    num("keys", "keys", units.count),
    num("memory", "bytes", units.size),
    num("fill", "fill", lambda x: units.percent(x, 1)),
    num("expected FPR", "expected_fpr", lambda x: units.percent(x, 3)),
    num("observed", "observed_fpr", lambda x: units.percent(x, 3)),
    Column("debt", "debt"),
]


def debts_of(tree: Tree | None) -> dict[int, str]:
    """Table -> why its filter does not suit it, by the options the database was last opened with."""
    if tree is None:
        return {}
    from lsmkv.filters import policy

    options, version = live.options(tree.folder), tree.state.version
    return policy.debts(version, policy.FilterPolicy.of(options, policy.observe(version, options)))


@declare(filter, example="lsmkv-tool filter ls mydb")
@path_argument(**WHERE)
def ls(out: Output, path: str) -> None:
    """List filters: level, bits, k, keys, fill, expected false positive rate, debt.

    `observed` is what lookups saw at that level, where the owner of a running database exports it
    (stats_export=True). A damaged filter answers "maybe" to everything and makes the exit code 1.
    """

    def look(tables: list[Place], tree: Tree | None) -> list[dict[str, Any]]:
        observed, debts = live.observed_fpr(path) if tree else {}, debts_of(tree)
        with Progress("opening", len(tables)) as progress:
            return [progress.did(filter_row(place, observed, debts), place.path) for place in tables]

    rows = over_tables(path, look)
    damaged = any(row["state"] == "damaged" for row in rows)
    out.rows(rows, LISTING, empty="no tables", finding=damaged)


@declare(filter, example="lsmkv-tool filter info table.sst")
@path_argument("file", "FILE")
def info(out: Output, file: str) -> None:
    """Print everything a table's filter says about itself."""
    with Place(file).opened() as table:
        data = {"file": file, "state": state_of(table.filter), **table.filter}
    out.result(data, lambda human: human.fields(data.items()), finding=data["state"] == "damaged")


def probe_row(place: Place, key: bytes) -> dict[str, Any] | None:
    """What one table's filter says of the key; None where its key range does not hold it."""
    with place.opened() as table:
        if not table.covers(key):
            return None
        found = table.probe(key)
        there = table.find(key) is not None
    if found["maybe"] and not there:
        verdict = "no filter" if not found["usable"] else "false positive"
    else:
        verdict = "maybe" if found["maybe"] else "no"
    return {
        "level": place.level,
        "file": os.path.basename(place.path),
        "block": found["block"],
        "bits": found["bits"],
        "set": found["set"],
        "verdict": verdict,
        "present": there,
    }


@declare(
    filter,
    example=("lsmkv-tool filter probe mydb user:00042", "lsmkv-tool filter probe mydb nobody"),
    keys=True,
)
@path_argument(**WHERE)
@click.argument("key", type=KEY)
def probe(out: Output, path: str, key: bytes) -> None:
    """Ask every filter that a lookup of KEY may reach: block, bits, verdict, and whether the key is there.

    Bits that are set are shown plain, a clear one (which proves absence) in [brackets]. `false positive` is a
    "maybe" for a key the table does not have.
    """
    rows = over_tables(path, lambda tables, _: [row for place in tables if (row := probe_row(place, key))])
    columns = [
        num("level", "level", lambda level: f"L{level}"),
        Column("file", "file"),
        num("block", "block"),
        Column("bits", "shown"),
        Column("verdict", "verdict"),
        Column("present", "present", lambda there: "yes" if there else "no"),
    ]
    wrong = [row for row in rows if row["verdict"] == "no" and row["present"]]
    if out.mode == "human":
        for row in rows:
            pairs = zip(row["bits"], row["set"], strict=True)
            row["shown"] = " ".join(str(bit) if one else f"[{bit}]" for bit, one in pairs)
    out.rows(rows, columns, empty="no table's key range holds the key", finding=bool(wrong))
    if wrong:
        raise Finding(f"the filter of {wrong[0]['file']} denies a key that the table has", wrong[0]["file"])


Z = 3.29  # 99.9 %


def interval(positives: int, n: int) -> tuple[float, float]:
    """Wilson's interval for the rate behind `positives` of `n`, at 99.9 %."""
    rate, z2 = positives / n, Z * Z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


TOLERANCE = 0.05
BLOCK_BITS = 512


def filling_luck(keys: int, blocks: int, k: int) -> float:
    """How far one filter's rate may lie from the mean over all fillings: much for few blocks.

    Keys fall on blocks at random (Poisson), and a block's rate grows steeply with its keys. Four deviations.
    """
    load = keys / blocks
    weight, mean, square = math.exp(-load), 0.0, 0.0
    for n in range(1, int(load + 12 * math.sqrt(load) + 20)):
        weight *= load / n
        rate = (1 - (1 - 1 / BLOCK_BITS) ** (k * n)) ** k
        mean += weight * rate
        square += weight * rate * rate
    return 4 * math.sqrt(max(0.0, square - mean * mean) / blocks)


def measure(place: Place, probes: int | None, seed: int) -> dict[str, Any]:
    with place.opened() as table:
        found = table.filter
        row = {
            "file": os.path.basename(place.path),
            "level": place.level,
            "bits_per_key": found["bits_per_key"],
        }
        expected = found["expected_fpr"]
        if not found["usable"]:
            blank = dict.fromkeys(("expected_fpr", "probes", "measured_fpr", "low", "high"))
            return row | blank | {"verdict": state_of(found)}
        # Enough positives for a bound of about 5 % of the rate, but never more than a second or two.
        n = probes or int(min(1e7, max(1e5, 4500 / max(expected, 1e-9))))
        positives = table.positives(n, seed)
        luck = filling_luck(found["keys"], found["blocks"], found["k"])
    low, high = interval(positives, n)
    if low > expected * (1 + TOLERANCE) + luck:
        verdict = "worse"
    elif high < expected * (1 - TOLERANCE) - luck:
        verdict = "better"
    else:
        verdict = "as expected"
    measured = {
        "expected_fpr": expected,
        "probes": n,
        "measured_fpr": positives / n,
        "low": low,
        "high": high,
    }
    return row | measured | {"verdict": verdict}


@declare(filter, example="lsmkv-tool filter fpr mydb")
@path_argument(**WHERE)
@click.option(
    "--probes", type=click.IntRange(min=1000), help="Absent keys per table; by default enough for +-5 %."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the random absent keys.")
def fpr(out: Output, path: str, probes: int | None, seed: int) -> None:
    """Measure false positive rates with random absent keys, against what bits and k should give.

    The bound holds with 99.9 %. `worse` means that even its lower end is over 5 % above the expected rate,
    and by more than the luck of a small filter's few blocks explains; it makes the exit code 1.
    """

    def probe_all(tables: list[Place], _: Tree | None) -> list[dict[str, Any]]:
        with Progress("probing", len(tables)) as progress:
            return [progress.did(measure(place, probes, seed), place.path) for place in tables]

    rows = over_tables(path, probe_all)
    columns = [
        num("level", "level", lambda level: f"L{level}"),
        Column("file", "file"),
        num("bits/key", "bits_per_key", lambda bits: f"{bits:.2f}"),
        num("expected", "expected_fpr", lambda x: units.percent(x, 3)),
        num("measured", "measured_fpr", lambda x: units.percent(x, 3)),
        num("from", "low", lambda x: units.percent(x, 3)),
        num("to", "high", lambda x: units.percent(x, 3)),
        num("probes", "probes", units.count),
        Column("", "verdict"),
    ]
    bad = any(row["verdict"] in ("worse", "damaged") for row in rows)
    out.rows(rows, columns, empty="no tables", finding=bad)


def pick(tables: list[Place], number: int | None) -> Place:
    if number is None:
        if not tables:
            raise Finding("no tables, so no filters")
        return max(tables, key=lambda place: place.meta.filter_bytes if place.meta else 0)
    for place in tables:
        if place.number == number:
            return place
    raise Usage(f"no table {number} in the database")


@declare(filter, example=("lsmkv-tool filter heat mydb", "lsmkv-tool filter heat table.sst --png heat.png"))
@path_argument(**WHERE)
@click.option("--table", "number", type=int, help="Number of the table in DB; by default the largest filter.")
@click.option("--width", type=click.IntRange(8, 400), default=64, show_default=True)
@click.option("--height", type=click.IntRange(1, 200), default=12, show_default=True)
@click.option("--png", "picture", type=click.Path(), help="Also write the map as a PNG file.")
def heat(out: Output, path: str, number: int | None, width: int, height: int, picture: str | None) -> None:
    """Draw how full each 512-bit block of a filter is.

    An even picture is a healthy filter; a bright spot is a block that many keys share, where false
    positives come from.
    """

    def look(tables: list[Place], _: Tree | None) -> tuple[Place, list[float], dict[str, Any]]:
        place = pick(tables, number)
        with place.opened() as table:
            return place, table.fills(1 << 16), table.filter

    place, fills, found = over_tables(path, look)
    if not fills:
        raise Finding(f"{place.path} has no usable filter: {found['problem']}", place.path)
    if picture:
        if os.path.lexists(picture):
            raise CannotOpen(f"{picture} exists; it is not overwritten", file=picture)
        with opening(picture), open(picture, "xb") as file:
            file.write(heat_map.png(fills))
    mean = sum(fills) / len(fills)
    spread = math.sqrt(sum((fill - mean) ** 2 for fill in fills) / len(fills))
    data = {
        "file": place.path,
        "blocks": found["blocks"],
        "mean": mean,
        "deviation": spread,
        "lowest": min(fills),
        "highest": max(fills),
        "over_60_percent": sum(fill > 0.6 for fill in fills) / len(fills),
        "cells": heat_map.cells(fills, width * height),
        "png": picture,
    }

    def show(human: Human) -> None:
        draw = heat_map.coloured if human.terminal and not os.environ.get("NO_COLOR") else heat_map.plain
        for line in draw(fills, width, height):
            human.line(line)
        human.line()
        human.fields(
            [
                ("file", place.path),
                ("blocks", units.count(found["blocks"])),
                ("fill", f"{units.percent(mean, 1)} on average, {units.percent(spread, 1)} deviation"),
                ("range", f"{units.percent(min(fills), 1)} to {units.percent(max(fills), 1)}"),
                ("over 60 %", units.percent(data["over_60_percent"], 2)),
            ]
        )
        if human.terminal is False:
            ends = f"{units.percent(heat_map.LOW, 0)} to {units.percent(heat_map.HIGH, 0)}"
            human.line(f"scale      {heat_map.SHADES!r} from {ends}")

    out.result(data, show)
