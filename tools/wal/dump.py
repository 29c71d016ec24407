"""`wal dump`: print the operations in a log."""

from __future__ import annotations

from collections.abc import Iterator

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import skip_dropped
from lsmkv_tool.exits import FINDING, open_errors
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Row, expiry_text, present
from lsmkv_tool.render.output import Output
from lsmkv_tool.wal.summary import log_paths, summarize_stable


def operation_rows(out: Output, path: str, limit: int | None) -> Iterator[Row]:
    """Yield one row per operation. If the log breaks off, the last row has a `problem`."""
    from lsmkv_ext.wal.dump import LogDump

    with open_errors(path):
        dump = LogDump(path)
        next(dump)  # the header
    n = 0
    for record in dump:
        if "operations" not in record:
            yield {"file": path, "offset": record["offset"], "problem": record["problem"]}
            return
        for op, key, value, seq, keyspace, expiry in record["operations"]:
            if limit is not None and n >= limit:
                return
            n += 1
            yield {
                "file": path,
                "offset": record["offset"],
                "seq": seq,
                "op": op,
                "keyspace": keyspace,
                "key": out.key(key),
                "value": operand(out, op, value),
                "expires": units.moment(expiry),
            }


def operand(out: Output, op: str, value: bytes | None) -> object:
    """The second operand: a value, the end key of delete_range, or the place of a value in a value log."""
    from lsmkv.filenames import value_log_name
    from lsmkv_ext.values.reader import decode_pointer

    if op == "put_pointer" and value is not None:
        number, offset, _, size, _ = decode_pointer(value)
        return f"{value_log_name(number)}:{offset}, {size} bytes"
    return (out.key if op == "delete_range" else out.value)(value)


def operation_text(row: Row) -> str:
    if "problem" in row:
        return f"{row['offset']:>10}  -- {row['problem']}"
    named = [f"keyspace {row['keyspace']}"] if row["keyspace"] else []
    place = [f"{row['offset']:>10}", f"{row['seq']:>10}", f"{row['op']:<12}"]
    return "  ".join([*place, *named, *present(row, "key", "value"), *expiry_text(row)])


@declare("wal dump", example="lsmkv-tool wal dump mydb --limit 5", key_format=True, value_format=True)
@path_argument("path", "DB|FILE")
@click.option("--limit", type=click.IntRange(min=0), help="Print at most this many operations per log.")
def dump(out: Output, path: str, limit: int | None) -> None:
    """Print every operation up to the first damage: offset, sequence number, operation, key, value, expiry.

    An operation of a named keyspace shows the id of it; `manifest summarize` has the names.
    """

    def rows() -> Iterator[Row]:
        for file in log_paths(path):
            with skip_dropped(file, [path]):
                for row in operation_rows(out, file, limit):
                    if "problem" in row:
                        if summarize_stable(file)["offset"] != row["offset"]:
                            break  # a running database was appending there
                        out.exit = FINDING
                    yield row

    out.stream(rows(), operation_text)
    if out.exit:
        out.note("lsmkv-tool: the log ends in bytes that are not a record (see `wal verify`)")
