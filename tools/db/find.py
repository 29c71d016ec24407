"""`db find`: list every version of a key."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.manifest.tree import Tree, with_tree
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import EXPIRES, LEVEL, Column, key, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.sst.table import Table, op_name

COLUMNS = [
    LEVEL,
    Column("file", "file"),
    Column("filter", "filter"),
    num("seq", "seq"),
    Column("op", "op"),
    Column("", "current", lambda yes: "<- current" if yes else ""),
    key("value", "value"),
    EXPIRES,
]


def log_versions(tree: Tree, key: bytes) -> list[dict[str, Any]]:
    """Return the operations in live logs that write or cover the key, newest first."""
    from lsmkv_ext.wal.dump import LogDump

    found = []
    for entry in tree.live_logs:
        for record in LogDump(tree.directory.file(entry.name)):
            for op, first, second, seq, keyspace, expiry in record.get("operations", ()):
                if keyspace != tree.keyspace:
                    continue
                if first <= key < second if op == "delete_range" else first == key:
                    value = second if op == "put" else None
                    row = {"file": entry.name, "level": None, "filter": None, "seq": seq, "op": op, "value": value}
                    found.append(row | {"expires": units.moment(expiry)})
    return sorted(found, key=lambda row: -row["seq"])


def table_versions(tree: Tree, key: bytes) -> list[dict[str, Any]]:
    """Return the entries of every table whose key range holds the key. A table without an entry has one row."""
    rows = []
    for level, meta in tree.files:
        if not meta.smallest <= key <= meta.largest:
            continue
        with Table(tree.path(meta), meta.global_seq) as table:
            verdict = table.probe(key)
            entry = table.find(key)
            covering = [seq for start, stop, seq in table.range_tombstones if start <= key < stop]
        answer = ("maybe" if verdict["maybe"] else "no") if verdict["usable"] else "no filter"
        row = {"file": f"{meta.number:06d}.sst", "level": level, "filter": answer}
        if entry is not None:
            value, seq, expiry = entry
            rows.append(row | {"seq": seq, "op": op_name(value), "value": value, "expires": units.moment(expiry)})
        for seq in covering:
            rows.append(row | {"seq": seq, "op": "delete_range", "value": None, "expires": None})
        if entry is None and not covering:
            rows.append(row | {"seq": None, "op": None, "value": None, "expires": None})
    return rows


@declare("db find", example="lsmkv-tool db find mydb user:00042", key_format=True, value_format=True, table=True)
@path_argument()
@click.argument("key", type=params.KEY)
@params.KEYSPACE
def find(out: Output, db: str, key: bytes, keyspace: str) -> None:
    """List every version of KEY, newest first: file, level, filter answer, sequence number, operation.

    Also lists tables whose key range holds KEY but that have no entry for it: the filter saved a read if it
    says `no`; a `maybe` is a false positive. Exits 1 if there is no version.
    """
    rows = with_tree(db, lambda tree: log_versions(tree, key) + table_versions(tree, key), keyspace)
    known = [row for row in rows if row["seq"] is not None]
    current = max(known, key=lambda row: row["seq"], default=None)
    for row in rows:
        row["value"] = out.value(row["value"])
        row["current"] = row is current
    out.rows(rows, COLUMNS, finding=not known, empty="no table's key range holds the key")
