"""`filter ls`: list filters."""

from __future__ import annotations

from typing import Any

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import stats_export
from lsmkv_tool.db.stored_options import read_options
from lsmkv_tool.filter.tables import TableRef, with_tables
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, LEVEL, Column, fixed, num, optional, percent
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.table import filter_state

COLUMNS = [
    LEVEL,
    FILE,
    Column("kind", "kind"),
    Column("state", "state"),
    fixed("bits/key", "bits_per_key", 2),
    num("k", "k", rank=4),
    num("keys", "keys", units.count),
    num("memory", "bytes", units.size),
    percent("fill", "fill", 1, rank=3),
    percent("expected FPR", "expected_fpr", 3),
    percent("observed", "observed_fpr", 3, rank=1),
    optional("debt", "debt", rank=2),
]


def filter_row(ref: TableRef, observed: dict[int, float], debts: dict[int, str]) -> dict[str, Any]:
    with ref.open() as table:
        found = table.filter
    return {
        "file": ref.name,
        "level": ref.level,
        "kind": found["kind"],
        "state": filter_state(found),
        "bits_per_key": found["bits_per_key"],
        "k": found["k"],
        "keys": found["keys"],
        "bytes": found["bytes"],
        "fill": found["fill"],
        "expected_fpr": found["expected_fpr"],
        "observed_fpr": observed.get(ref.level) if ref.level is not None else None,
        "built_for": found["level"],
        "debt": debts.get(ref.number) if ref.number is not None else None,
        "problem": found["problem"],
    }


def filter_debts(tree: Tree) -> dict[int, str]:
    """Map table numbers to the reason why their filters differ from what the stored options ask for."""
    from lsmkv.filters import policy

    options, version = read_options(tree.directory).for_keyspace(tree.stored.options), tree.version
    return policy.debts(version, policy.FilterPolicy.of(options, policy.observe(version, options)))


@declare("filter ls", example="lsmkv-tool filter ls mydb", table=True)
@path_argument("path", "DB|FILE")
@params.KEYSPACE
def ls(out: Output, path: str, keyspace: str) -> None:
    """List filters: level, kind, bits, k, keys, fill, expected false positive rate, debt.

    `k` is the number of bits per key, or the width of a fuse filter's fingerprints. `observed` is the rate that
    lookups saw in this level; a running database exports it with stats_export=True. A damaged filter answers "maybe"
    for every key and sets exit code 1.
    """

    def read(tables: list[TableRef], tree: Tree | None) -> list[dict[str, Any]]:
        observed, debts = (stats_export.observed_fpr(path, keyspace), filter_debts(tree)) if tree else ({}, {})
        with Progress("opening", len(tables)) as progress:
            return [filter_row(ref, observed, debts) for ref in progress.over(tables)]

    rows = with_tables(path, keyspace, read)
    damaged = any(row["state"] == "damaged" for row in rows)
    out.rows(rows, COLUMNS, empty="no tables", finding=damaged)
