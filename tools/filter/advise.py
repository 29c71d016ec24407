"""`filter advise` and `rebuild`: a better split of the filters' memory, and putting it into the tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import stats_export as live
from lsmkv_tool.db.handle import writing
from lsmkv_tool.exits import Finding, Usage
from lsmkv_tool.filter.tables import filter
from lsmkv_tool.manifest.tree import Tree, expected_fpr, load, steady
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Human, Output, num
from lsmkv_tool.render.progress import Progress

if TYPE_CHECKING:
    from lsmkv.filters.planner import LevelShape
    from lsmkv.version.version import FileMeta

# Solved bits are given to this many decimals: finer makes no difference and reads badly.
DECIMALS = 2


def shapes(tree: Tree, absent: float) -> list[LevelShape]:
    """The levels as they are, weighted by the probes for nothing that the share of absent keys causes."""
    from lsmkv.filters.planner import LevelShape, weighted

    levels = [
        LevelShape(sum(meta.entries for meta in files), max(1, len(files) if level == 0 else 1))
        for level, files in enumerate(tree.levels)
    ]
    return list(weighted(levels, absent))


def rate_now(level: int, files: Sequence[FileMeta]) -> float:
    """Mean false positive rate over the tables of a level that a lookup asks."""
    return _mean(level, files, [1.0 if (rate := expected_fpr(meta)) is None else rate for meta in files])


def rate_with(level: int, files: Sequence[FileMeta], bits: float) -> float:
    from lsmkv_ext.filter.bloom import blocks_for, fpr_for, k_for

    if not bits:
        return 1.0
    rates = [fpr_for(meta.entries, blocks_for(meta.entries, bits), k_for(bits)) for meta in files]
    return _mean(level, files, rates)


def _mean(level: int, files: Sequence[FileMeta], rates: Sequence[float]) -> float:
    """A lookup asks every table of L0, but of a deeper level the one that holds its place among the keys."""
    if level == 0:
        return sum(rates) / len(rates)
    entries = sum(meta.entries for meta in files)
    weighted = sum(rate * meta.entries for rate, meta in zip(rates, files, strict=True))
    return weighted / entries if entries else 0.0


def memory_with(files: Sequence[FileMeta], bits: float) -> int:
    from lsmkv_ext.filter.bloom import blocks_for

    return sum(blocks_for(meta.entries, bits) * 64 for meta in files) if bits else 0


def solve(tree: Tree, levels: Sequence[LevelShape], memory: int) -> list[float]:
    from lsmkv.filters.planner import solve_memory

    solved = [round(bits, DECIMALS) for bits in solve_memory(levels, memory)]
    # An empty level is given what its neighbour below gets, so that the list says something for every level.
    for level in reversed(range(len(solved) - 1)):
        if not levels[level].entries:
            solved[level] = solved[level + 1]
    deepest = max((i for i, files in enumerate(tree.levels) if files), default=0)
    return solved[: deepest + 1]


def proposal(tree: Tree, absent: float, memory: int) -> dict[str, Any]:
    levels = shapes(tree, absent)
    bits = solve(tree, levels, memory)
    rows = []
    for level, (files, wanted) in enumerate(zip(tree.levels, bits, strict=False)):
        if not files:
            continue
        keys = sum(meta.filter_keys for meta in files)
        now = sum(meta.filter_bytes for meta in files)
        in_vain = levels[level].in_vain
        rows.append(
            {
                "level": level,
                "files": len(files),
                "entries": levels[level].entries,
                "probes_in_vain": in_vain,
                "bits_now": now * 8 / keys if keys else 0.0,
                "bits_then": wanted,
                "memory_now": now,
                "memory_then": memory_with(files, wanted),
                "wasted_now": in_vain * rate_now(level, files),
                "wasted_then": in_vain * rate_with(level, files, wanted),
            }
        )
    total = {
        name: sum(row[name] for row in rows)
        for name in ("memory_now", "memory_then", "wasted_now", "wasted_then")
    }
    return {"absent": absent, "bits_per_key": bits, "rows": rows, **total}


def reasons(found: dict[str, Any]) -> list[str]:
    """Why, in sentences."""
    rows, out = found["rows"], []
    more = [row for row in rows if row["bits_then"] > row["bits_now"] + 0.1]
    less = [row for row in rows if row["bits_then"] < row["bits_now"] - 0.1]
    if more:
        names = ", ".join(f"L{row['level']}" for row in more)
        keys = sum(row["entries"] for row in more) / max(1, sum(row["entries"] for row in rows))
        out.append(
            f"{names}: {units.percent(keys, 1)} of the keys, so a bit per key costs little there, yet "
            f"a lookup probes {sum(row['probes_in_vain'] for row in more):.2f} of their filters for nothing"
        )
    if less:
        names = ", ".join(f"L{row['level']}" for row in less)
        out.append(
            f"{names}: most of the memory, and one probe per lookup; fewer bits there pay for the rest"
        )
    before, after = found["wasted_now"], found["wasted_then"]
    if before > 0 and after < before * 0.98:
        saved = 1 - after / before
        out.append(f"wasted reads fall by {units.percent(saved, 1)} at {memory_change(found)}")
    else:
        out.append("the filters are as good as this memory allows: nothing to change")
    return out


def memory_change(found: dict[str, Any]) -> str:
    change = found["memory_then"] - found["memory_now"]
    if abs(change) < 0.02 * max(1, found["memory_now"]):
        return "the same memory"
    return f"{units.size(abs(change))} {'more' if change > 0 else 'less'} memory"


def as_list(bits: Sequence[float]) -> str:
    return ",".join(f"{b:g}" for b in bits)


ADVICE = [
    num("level", "level", lambda level: f"L{level}"),
    num("files", "files"),
    num("keys", "entries", units.count),
    num("probes for nothing", "probes_in_vain", lambda x: f"{x:.2f}"),
    num("bits now", "bits_now", lambda x: f"{x:.2f}"),
    num("then", "bits_then", lambda x: f"{x:.2f}"),
    num("memory now", "memory_now", units.size),
    num("then", "memory_then", units.size),
    num("wasted reads now", "wasted_now", lambda x: f"{x:.4f}"),
    num("then", "wasted_then", lambda x: f"{x:.4f}"),
]


@declare(filter, example="lsmkv-tool filter advise mydb --absent 1.0")
@path_argument()
@click.option(
    "--absent",
    type=click.FloatRange(0, 1),
    help="Share of lookups for absent keys; by default measured where the owner exports it, else 1.",
)
@click.option("--memory", type=params.SIZE, help="Memory to spend; by default what the filters have now.")
def advise(out: Output, db: str, absent: float | None, memory: int | None) -> None:
    """Propose bits per key for each level: memory and wasted reads per lookup, before and after, and why.

    `probes for nothing` is how many tables of a level a lookup asks although they do not hold its key; without a
    filter each would be a read.
    """
    tree = steady(db, lambda tree: tree)
    if not tree.files:
        raise Finding(f"{db} has no tables, so there is nothing to advise on")
    measured = absent is None
    share = live.absent_share(db) if absent is None else absent
    absent = 1.0 if share is None else share
    budget = memory if memory is not None else sum(meta.filter_bytes for _, meta in tree.files)
    found = proposal(tree, absent, budget)
    found["absent_measured"] = measured and share is not None
    found["why"] = reasons(found)
    found["command"] = f"lsmkv-tool filter rebuild {db} --bits {as_list(found['bits_per_key'])}"

    def after(human: Human) -> None:
        human.line()
        source = "measured" if found["absent_measured"] else "assumed" if measured else "given"
        human.fields(
            [
                ("absent keys", f"{units.percent(absent, 1)} of lookups ({source})"),
                ("memory", f"{units.size(found['memory_now'])} now, {units.size(found['memory_then'])} then"),
                (
                    "wasted reads",
                    f"{found['wasted_now']:.4f} per lookup now, {found['wasted_then']:.4f} then",
                ),
            ]
        )
        for reason in found["why"]:
            human.line(f"- {reason}")
        human.line(f"\n  {found['command']}")
        human.line(
            f"  and open the database with bits_per_key=[{as_list(found['bits_per_key'])}] from then on"
        )

    rows = found.pop("rows")
    out.rows(rows, ADVICE, after=after, **found)


@declare(filter, example="lsmkv-tool filter rebuild mydb --bits 14,12,9 --yes", changes=True)
@path_argument()
@click.option(
    "--bits",
    type=params.BITS,
    help="Bits per key: a number, a list from L0 on, or auto. By default those it was last opened with.",
)
@click.option("--level", type=click.IntRange(0, 6), help="Only the tables of this level.")
def rebuild(out: Output, db: str, bits: Any, level: int | None) -> None:
    """Write new filters for tables whose filter does not suit them; data blocks are copied untouched."""
    before = load(db)
    options = {} if bits is None else {"bits_per_key": list(bits) if isinstance(bits, tuple) else bits}
    if level is not None and not before.levels[level]:
        raise Usage(f"L{level} has no tables")
    out.confirm(f"Rewrite the filters of {db}?")
    began = time.perf_counter()
    with Progress("rebuilding filters"), writing(db, **options) as handle:
        handle.rebuild_filters(level)
    after = load(db)
    old, new = ({meta.number for _, meta in tree.files} for tree in (before, after))
    data: dict[str, Any] = {
        "path": db,
        "rebuilt": len(new - old),
        "memory_before": sum(meta.filter_bytes for _, meta in before.files),
        "memory_after": sum(meta.filter_bytes for _, meta in after.files),
        "seconds": time.perf_counter() - began,
    }
    out.result(
        data,
        lambda human: human.line(
            f"{data['rebuilt']} filters rebuilt in {units.duration(data['seconds'] * 1e9)}; "
            f"memory {units.size(data['memory_before'])} before, {units.size(data['memory_after'])} after"
        ),
    )
