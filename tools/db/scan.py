"""`db get`, `multi-get`, `scan`: what a reader of the database sees."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from lsmkv_tool import exits
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import db, reading
from lsmkv_tool.keys import KEY
from lsmkv_tool.render.output import Column, Output, Row
from lsmkv_tool.render.progress import Progress


@declare(db, example="lsmkv-tool db get mydb user:00042", keys=True, values=True)
@path_argument()
@click.argument("key", type=KEY)
@click.option("--raw", is_flag=True, help="The value's bytes alone, no line end.")
def get(out: Output, db: str, key: bytes, raw: bool) -> None:
    """Print the value of KEY; exits 1 if the database does not have it."""
    with reading(db) as handle:
        value = handle.get(key)
    row = {"key": out.key(key), "found": value is not None, "value": out.value(value)}
    if value is None:
        out.result(row, lambda human: out.note(f"{out.key_text(key)}: not found"), finding=True)
    elif raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(value)
    else:
        shown = row["value"]
        out.result(row, lambda human: human.line("" if shown is None else str(shown)))


@declare(db, example="lsmkv-tool db multi-get mydb user:00042 user:00044", keys=True, values=True)
@path_argument()
@click.argument("keys", type=KEY, nargs=-1, required=True)
def multi_get(out: Output, db: str, keys: tuple[bytes, ...]) -> None:
    """Print the values of several KEYS in one read; exits 1 if any is missing."""
    with reading(db) as handle:
        values = handle.multi_get(list(keys))
    rows = [
        {"key": out.key(key), "found": value is not None, "value": out.value(value)}
        for key, value in zip(keys, values, strict=True)
    ]
    columns = [Column("key", "key"), Column("found", "found", lambda found: "yes" if found else "no")]
    columns.append(Column("value", "value"))
    out.rows(rows, columns, finding=any(value is None for value in values))


@declare(
    db,
    example=(
        "lsmkv-tool db scan mydb --prefix user:0004 --limit 3",
        "lsmkv-tool db scan mydb --from user:00100 --to user:00200 --count",
    ),
    keys=True,
    values=True,
)
@path_argument()
@click.option("--from", "start", type=KEY, help="First key.")
@click.option("--to", "stop", type=KEY, help="Key to stop before.")
@click.option("--prefix", type=KEY, help="Only keys that begin so.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many.")
@click.option("--reverse", is_flag=True, help="From the last key down.")
@click.option("--no-value", is_flag=True, help="Keys alone.")
@click.option("--count", "counting", is_flag=True, help="Only how many there are.")
def scan(
    out: Output,
    db: str,
    start: bytes | None,
    stop: bytes | None,
    prefix: bytes | None,
    limit: int | None,
    reverse: bool,
    no_value: bool,
    counting: bool,
) -> None:
    """Print keys and values in order, tab between them."""
    if prefix is not None and (start is not None or stop is not None):
        raise exits.Usage("--prefix already says where to begin and end; leave out --from and --to")
    with reading(db) as handle:
        iterator = handle.iterator(
            reverse=reverse,
            start=start,
            stop=stop,
            prefix=prefix,
            include_value=not (no_value or counting),
            fill_cache=False,
        )
        with Progress("scanning", quiet=not counting and sys.stdout.isatty()) as progress:
            if counting:
                n = 0
                for n, _ in enumerate(iterator, 1):
                    progress.step()
                    if limit is not None and n >= limit:
                        break
                n = 0 if limit == 0 else n
                out.result({"count": n}, lambda human: human.line(str(n)))
                return

            def rows() -> Iterator[Row]:
                if limit == 0:
                    return
                for n, item in enumerate(iterator, 1):
                    progress.step()
                    if no_value:
                        yield {"key": out.key(item)}
                    else:
                        yield {"key": out.key(item[0]), "value": out.value(item[1])}
                    if n == limit:
                        return

            out.stream(rows(), lambda row: "\t".join(str(part) for part in row.values() if part is not None))
