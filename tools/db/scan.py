"""`db scan`: print a range of entries."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import click

from lsmkv_tool import exits, params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import in_keyspace, open_reader
from lsmkv_tool.render.columns import Row, present
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress


@declare(
    "db scan",
    example=(
        "lsmkv-tool db scan mydb --prefix user:0004 --limit 3",
        "lsmkv-tool db scan mydb --from user:00100 --to user:00200 --count",
        "lsmkv-tool db scan shop --keyspace orders --limit 3",
    ),
    key_format=True,
    value_format=True,
)
@path_argument()
@params.START
@params.STOP
@click.option("--prefix", type=params.KEY, help="Only keys with this prefix.")
@params.LIMIT
@click.option("--reverse", is_flag=True, help="Scan in descending order.")
@click.option("--no-value", is_flag=True, help="Print only keys.")
@click.option("--count", "count_only", is_flag=True, help="Print only the number of keys.")
@params.KEYSPACE
def scan(
    out: Output,
    db: str,
    start: bytes | None,
    stop: bytes | None,
    prefix: bytes | None,
    limit: int | None,
    reverse: bool,
    no_value: bool,
    count_only: bool,
    keyspace: str,
) -> None:
    """Print keys and values in key order, separated by a tab."""
    if prefix is not None and (start is not None or stop is not None):
        raise exits.Usage("--prefix cannot be combined with --from or --to")
    with open_reader(db) as handle:
        iterator = in_keyspace(handle, keyspace).iterator(
            reverse=reverse,
            start=start,
            stop=stop,
            prefix=prefix,
            include_value=not (no_value or count_only),
            fill_cache=False,
        )
        with Progress("scanning", quiet=not count_only and sys.stdout.isatty()) as progress:
            limited = itertools.islice(iterator, limit)
            if count_only:
                n = 0
                for _ in limited:
                    n += 1
                    progress.step()
                out.result({"count": n}, lambda printer: printer.line(str(n)))
                return

            def rows() -> Iterator[Row]:
                for item in limited:
                    progress.step()
                    if no_value:
                        yield {"key": out.key(item)}
                    else:
                        yield {"key": out.key(item[0]), "value": out.value(item[1])}

            out.stream(rows(), lambda row: "\t".join(present(row, *row)))
