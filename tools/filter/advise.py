"""`filter advise`: propose bits per key for each level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import stats_export
from lsmkv_tool.db.stored_options import read_options
from lsmkv_tool.exits import Finding
from lsmkv_tool.manifest.levels import expected_fpr, mean_fpr
from lsmkv_tool.manifest.tree import Tree, load_tree
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import LEVEL, Column, fixed, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer

if TYPE_CHECKING:
    from lsmkv.filters.curves import Curve
    from lsmkv.filters.planner import LevelShape
    from lsmkv.version.version import TableMeta

# Finer steps in the proposed bits make no difference.
DECIMALS = 2

COLUMNS = [
    LEVEL,
    num("files", "files", rank=2),
    num("keys", "entries", units.count),
    fixed("wasted probes", "wasted_probes", 2, rank=1),
    Column("filter", "filter"),
    fixed("bits now", "bits_now", 2),
    fixed("bits then", "bits_then", 2),
    num("memory now", "memory_now", units.size),
    num("memory then", "memory_then", units.size),
    fixed("wasted now", "wasted_now", 4),
    fixed("wasted then", "wasted_then", 4),
]


def stored_kinds(tree: Tree) -> str | tuple[str, ...]:
    """Return the option `filter` that the keyspace was last opened with."""
    return read_options(tree.directory).for_keyspace(tree.stored.options).filter


def level_shapes(tree: Tree, absent: float, kind: str | Sequence[str] = "bloom") -> list[LevelShape]:
    """Return the levels, weighted by the wasted probes that the share of absent keys causes."""
    from lsmkv.filters.curves import curve_for
    from lsmkv.filters.kinds import kinds_of
    from lsmkv.filters.planner import LevelShape, weighted

    bottom = max((i for i, files in enumerate(tree.levels) if files), default=0)
    levels = []
    for level, (files, wanted) in enumerate(zip(tree.levels, kinds_of(kind, len(tree.levels), bottom), strict=True)):
        entries, runs = sum(meta.entries for meta in files), max(1, len(files) if level == 0 else 1)
        curve = curve_for(wanted.fuse, entries // max(1, len(files)))
        levels.append(LevelShape(entries, runs, curve=curve))
    return list(weighted(levels, absent))


def fpr_now(level: int, files: Sequence[TableMeta]) -> float:
    return mean_fpr(level, files, [expected_fpr(meta) for meta in files])


def fpr_with(level: int, files: Sequence[TableMeta], bits: float, curve: Curve) -> float:
    from lsmkv_ext.filter.curve import blocks_for, fpr_for, k_for

    if not bits:
        return 1.0
    if width := curve.width(curve.taken(bits)):
        return 2.0**-width
    rates = [fpr_for(meta.entries, blocks_for(meta.entries, bits), k_for(bits)) for meta in files]
    return mean_fpr(level, files, rates)


def memory_with(files: Sequence[TableMeta], bits: float, curve: Curve) -> int:
    from lsmkv_ext.filter.curve import blocks_for

    if curve.width(taken := curve.taken(bits)):
        return round(sum(meta.entries for meta in files) * taken / 8)
    return sum(blocks_for(meta.entries, bits) * 64 for meta in files) if bits else 0


def solve(tree: Tree, levels: Sequence[LevelShape], memory: int) -> list[float]:
    """Return bits per key for each level down to the deepest with tables."""
    from lsmkv.filters.planner import solve_memory

    best = solve_memory(levels, memory)
    solved = [
        round(level.curve.given(bits), DECIMALS + level.curve.fuse) for level, bits in zip(levels, best, strict=True)
    ]
    # An empty level gets the bits of the level below it.
    for level in reversed(range(len(solved) - 1)):
        if not levels[level].entries:
            solved[level] = solved[level + 1]
    deepest = max((i for i, files in enumerate(tree.levels) if files), default=0)
    return solved[: deepest + 1]


def propose(tree: Tree, absent: float, memory: int, kind: str | Sequence[str] = "bloom") -> dict[str, Any]:
    levels = level_shapes(tree, absent, kind)
    bits = solve(tree, levels, memory)
    rows = []
    for level, (files, wanted) in enumerate(zip(tree.levels, bits, strict=False)):
        if not files:
            continue
        keys = sum(meta.filter_keys for meta in files)
        now = sum(meta.filter_bytes for meta in files)
        wasted_probes = levels[level].wasted_probes
        rows.append(
            {
                "level": level,
                "files": len(files),
                "entries": levels[level].entries,
                "wasted_probes": wasted_probes,
                "bits_now": now * 8 / keys if keys else 0.0,
                "bits_then": wanted,
                "memory_now": now,
                "filter": "fuse" if levels[level].curve.width(levels[level].curve.taken(wanted)) else "bloom",
                "memory_then": memory_with(files, wanted, levels[level].curve),
                "wasted_now": wasted_probes * fpr_now(level, files),
                "wasted_then": wasted_probes * fpr_with(level, files, wanted, levels[level].curve),
            }
        )
    summed = ("memory_now", "memory_then", "wasted_now", "wasted_then")
    totals = {name: sum(row[name] for row in rows) for name in summed}
    return {"absent": absent, "bits_per_key": bits, "rows": rows, **totals}


def reasons(found: dict[str, Any]) -> list[str]:
    rows, out = found["rows"], []
    more = [row for row in rows if row["bits_then"] > row["bits_now"] + 0.1]
    less = [row for row in rows if row["bits_then"] < row["bits_now"] - 0.1]
    if more:
        share = sum(row["entries"] for row in more) / max(1, sum(row["entries"] for row in rows))
        wasted = sum(row["wasted_probes"] for row in more)
        out.append(
            f"{level_names(more)}: {units.percent(share, 1)} of the keys but {wasted:.2f} wasted probes per lookup; "
            "more bits cost little here"
        )
    if less and more:
        out.append(
            f"{level_names(less)}: most of the memory but one probe per lookup; fewer bits here pay for the rest"
        )
    before, after = found["wasted_now"], found["wasted_then"]
    if before > 0 and after < before * 0.98:
        out.append(f"wasted reads fall by {units.percent(1 - after / before, 1)} with {memory_change(found)}")
    else:
        out.append("nothing to change: no split of this memory is better")
    return out


def level_names(rows: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"L{row['level']}" for row in rows)


def memory_change(found: dict[str, Any]) -> str:
    change = found["memory_then"] - found["memory_now"]
    if abs(change) < 0.02 * max(1, found["memory_now"]):
        return "the same memory"
    return f"{units.size(abs(change))} {'more' if change > 0 else 'less'} memory"


@declare("filter advise", example="lsmkv-tool filter advise mydb --absent 1.0", table=True)
@path_argument()
@click.option(
    "--absent",
    type=params.FloatRange(0, 1),
    help="Share of lookups for absent keys; by default as measured by a running database, otherwise 1.",
)
@click.option("--memory", type=params.SIZE, help="Filter memory; by default the current amount.")
@click.option(
    "--kind",
    type=click.Choice(["bloom", "fuse", "auto"]),
    help="Kind of filter, as the option `filter`; by default the stored option.",
)
@params.KEYSPACE
def advise(out: Output, db: str, absent: float | None, memory: int | None, kind: str | None, keyspace: str) -> None:
    """Propose bits per key for each level, with memory and wasted reads per lookup now and then.

    `wasted probes` counts the tables per lookup that are probed but do not hold the key. A false positive of
    their filter is a wasted read.
    """
    tree = load_tree(db, keyspace)
    if not tree.files:
        raise Finding(f"{db} has no tables")
    measured = stats_export.absent_share(db, keyspace) if absent is None else None
    source = "given" if absent is not None else "assumed" if measured is None else "measured"
    share = next(value for value in (absent, measured, 1.0) if value is not None)
    found = propose(tree, share, tree.filter_bytes if memory is None else memory, kind or stored_kinds(tree))
    bits = ",".join(f"{b:g}" for b in found["bits_per_key"])
    found["absent_measured"] = measured is not None
    found["why"] = reasons(found)
    found["command"] = f"lsmkv-tool filter rebuild {db} --bits {bits}"
    found["command"] += f" --kind {kind}" if kind else ""
    found["command"] += f" --keyspace {keyspace}" if keyspace else ""

    def after(printer: Printer) -> None:
        printer.line()
        printer.fields(
            [
                ("absent keys", f"{units.percent(share, 1)} of lookups ({source})"),
                ("memory", f"{units.size(found['memory_now'])} now, {units.size(found['memory_then'])} then"),
                ("wasted reads", f"{found['wasted_now']:.4f} per lookup now, {found['wasted_then']:.4f} then"),
            ]
        )
        for reason in found["why"]:
            printer.sentence(reason, "- ")
        printer.line()
        printer.sentence("To apply it, run this command, and open the database with the same options from then on:")
        opened = f"db.keyspace({keyspace!r}, " if keyspace else "lsmkv.open(..., "
        kind_too = f", filter={kind!r}" if kind else ""
        printer.line(f"\n  {found['command']}\n  {opened}bits_per_key=[{bits}]{kind_too})")

    rows = found.pop("rows")
    out.rows(rows, COLUMNS, after=after, **found)
