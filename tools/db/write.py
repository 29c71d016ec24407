"""`db put` and `db delete`: write keys."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import in_keyspace, open_writer
from lsmkv_tool.exits import Usage, open_errors
from lsmkv_tool.render.output import Output


@declare("db put", example="lsmkv-tool db put mydb user:99999 Ada --yes", key_format=True, writes=True)
@path_argument()
@click.argument("key", type=params.KEY)
@click.argument("value", type=params.KEY, required=False)
@click.option("--value-file", type=click.Path(), help="Read the value from this file (- for stdin).")
@click.option("--sync/--no-sync", default=True, show_default=True, help="Wait until the write is durable.")
@click.option("--ttl", type=params.FloatRange(min=0, min_open=True), help="Seconds until the entry expires.")
@params.KEYSPACE
def put(
    out: Output,
    db: str,
    key: bytes,
    value: bytes | None,
    value_file: str | None,
    sync: bool,
    ttl: float | None,
    keyspace: str,
) -> None:
    """Store VALUE under KEY. VALUE uses the notations of keys: text, hex:, base64:."""
    if (value is None) == (value_file is None):
        raise Usage("expected either VALUE or --value-file")
    if value is None:
        with open_errors(value_file or ""):
            value = sys.stdin.buffer.read() if value_file == "-" else Path(value_file or "").read_bytes()
    out.confirm(f"Store {len(value)} bytes under {out.key_text(key)} in {db}?")
    with open_writer(db) as handle:
        in_keyspace(handle, keyspace).put(key, value, sync=sync, ttl=ttl)
    done = {"key": out.key(key), "bytes": len(value), "synced": sync, "ttl": ttl}
    out.result(done, lambda printer: printer.line(f"stored {len(value)} bytes under {out.key_text(key)}"))


@declare("db delete", example="lsmkv-tool db delete mydb user:00007 --yes", key_format=True, writes=True)
@path_argument()
@click.argument("keys", type=params.KEY, nargs=-1)
@params.START
@params.STOP
@params.KEYSPACE
def delete(
    out: Output, db: str, keys: tuple[bytes, ...], start: bytes | None, stop: bytes | None, keyspace: str
) -> None:
    """Delete KEYS, or all keys in a range."""
    ranged = start is not None and stop is not None
    if ranged == bool(keys) or (start is None) != (stop is None):
        raise Usage("expected either KEYS or both --from and --to")
    what = f"{len(keys)} key(s)" if keys else f"all keys from {out.key_text(start)} to {out.key_text(stop)}"
    out.confirm(f"Delete {what} in {db}?")
    with open_writer(db) as handle, in_keyspace(handle, keyspace).write_batch(sync=True) as batch:
        for key in keys:
            batch.delete(key)
        if start is not None and stop is not None:
            batch.delete_range(start, stop)
    done = {"keys": [out.key(key) for key in keys], "from": out.key(start), "to": out.key(stop)}
    out.result(done, lambda printer: printer.line(f"deleted {what}"))
