"""`db get` and `db multi-get`: look up keys."""

from __future__ import annotations

import sys
from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import in_keyspace, open_reader
from lsmkv_tool.render.columns import Column, key
from lsmkv_tool.render.output import Output

COLUMNS = [
    key("key", "key"),
    Column("found", "found", lambda found: "yes" if found else "no"),
    key("value", "value"),
]


def lookup_row(out: Output, key: bytes, value: bytes | None) -> dict[str, Any]:
    return {"key": out.key(key), "found": value is not None, "value": out.value(value)}


@declare(
    "db get",
    example=("lsmkv-tool db get mydb user:00042", "lsmkv-tool db get shop ada --keyspace users"),
    key_format=True,
    value_format=True,
)
@path_argument()
@click.argument("key", type=params.KEY)
@click.option("--raw", is_flag=True, help="Print only the value's bytes, without a newline.")
@params.KEYSPACE
def get(out: Output, db: str, key: bytes, raw: bool, keyspace: str) -> None:
    """Print the value of KEY. Exits 1 if it is not found."""
    with open_reader(db) as handle:
        value = in_keyspace(handle, keyspace).get(key)
    row = lookup_row(out, key, value)
    if value is None:
        out.result(row, lambda printer: out.note(f"{out.key_text(key)}: not found"), finding=True)
    elif raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(value)
    else:
        shown = row["value"]
        out.result(row, lambda printer: printer.line("" if shown is None else str(shown)))


@declare(
    "db multi-get",
    example="lsmkv-tool db multi-get mydb user:00042 user:00044",
    key_format=True,
    value_format=True,
    table=True,
)
@path_argument()
@click.argument("keys", type=params.KEY, nargs=-1, required=True)
@params.KEYSPACE
def multi_get(out: Output, db: str, keys: tuple[bytes, ...], keyspace: str) -> None:
    """Print the values of several KEYS. Exits 1 if any is not found."""
    with open_reader(db) as handle:
        values = in_keyspace(handle, keyspace).multi_get(list(keys))
    rows = [lookup_row(out, key, value) for key, value in zip(keys, values, strict=True)]
    out.rows(rows, COLUMNS, finding=any(value is None for value in values))
