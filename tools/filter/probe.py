"""`filter probe`: probe the filters for a key."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.exits import Finding
from lsmkv_tool.filter.tables import TableRef, with_tables
from lsmkv_tool.render.columns import FILE, LEVEL, Column, num, prose
from lsmkv_tool.render.output import Output

COLUMNS = [
    LEVEL,
    FILE,
    num("block", "block", rank=1),
    prose("bits", "shown"),
    Column("verdict", "verdict"),
    Column("present", "present", lambda there: "yes" if there else "no"),
]


def probe_row(ref: TableRef, key: bytes) -> dict[str, Any] | None:
    """Probe one table's filter. Return None if the table's key range does not hold the key."""
    with ref.open() as table:
        if not table.covers(key):
            return None
        found = table.probe(key)
        there = table.find(key) is not None
    if found["maybe"] and not there:
        verdict = "false positive" if found["usable"] else "no filter"
    else:
        verdict = "maybe" if found["maybe"] else "no"
    return {
        "level": ref.level,
        "file": ref.name,
        "kind": found["kind"],
        "block": found.get("block"),
        "bits": found.get("bits", []),
        "set": found.get("set", []),
        "slots": found.get("slots", []),
        "values": found.get("values", []),
        "fingerprint": found.get("fingerprint"),
        "verdict": verdict,
        "present": there,
    }


def shown(row: dict[str, Any]) -> str:
    if row["kind"] == "fuse":
        values = " ^ ".join(f"{value:x}" for value in row["values"])
        return f"slots {' '.join(map(str, row['slots']))}: {values}, fingerprint {row['fingerprint']:x}"
    pairs = zip(row["bits"], row["set"], strict=True)
    return " ".join(str(bit) if one else f"[{bit}]" for bit, one in pairs)


@declare(
    "filter probe",
    example=("lsmkv-tool filter probe mydb user:00042", "lsmkv-tool filter probe mydb nobody"),
    key_format=True,
    table=True,
)
@path_argument("path", "DB|FILE")
@click.argument("key", type=params.KEY)
@params.KEYSPACE
def probe(out: Output, path: str, key: bytes, keyspace: str) -> None:
    """Probe the filter of every table whose key range holds KEY: block, bits, verdict, and presence.

    A clear bit, which proves that the key is absent, is shown in [brackets]. Of a fuse filter the slots of the key are
    shown: the key is absent if their exclusive or differs from its fingerprint. `false positive` is a "maybe" for
    an absent key.
    """
    rows = with_tables(path, keyspace, lambda tables, _: [row for ref in tables if (row := probe_row(ref, key))])
    wrong = [row for row in rows if row["verdict"] == "no" and row["present"]]
    if out.mode == "text":
        for row in rows:
            row["shown"] = shown(row)
    out.rows(rows, COLUMNS, empty="no table's key range holds the key", finding=bool(wrong))
    if wrong:
        raise Finding(f"the filter of {wrong[0]['file']} denies a key that the table has", wrong[0]["file"])
