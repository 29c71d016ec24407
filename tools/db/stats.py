"""`db stats`: print statistics."""

from __future__ import annotations

from typing import Any

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import level_stats
from lsmkv_tool.db.handle import in_keyspace, open_reader
from lsmkv_tool.db.stats_export import read_sample
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer


def flatten(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested statistics under dotted names."""
    if isinstance(value, dict):
        named = ((f"{prefix}.{name}" if prefix else name, inner) for name, inner in value.items())
        return [pair for name, inner in named for pair in flatten(inner, name)]
    return [(prefix, value)]


@declare("db stats", example="lsmkv-tool db stats mydb", table=True)
@path_argument()
@params.KEYSPACE
def stats(out: Output, db: str, keyspace: str) -> None:
    """Print statistics: reads, filters, cache, log, flushes, compactions, stalls.

    They come from the running database if it exports them (stats_export=True), and otherwise from the tables
    alone. With several keyspaces, lookups, memtables and levels are those of one, all other figures those of the
    whole database.
    """
    sample = read_sample(db, keyspace)
    if sample is not None:
        pid, found = sample.pid, sample.stats
        source = f"exported by process {pid}, {sample.age:.1f} s ago"
    else:
        pid, source = None, "from the tables alone; no process exports statistics"
        with open_reader(db) as handle:
            found = in_keyspace(handle, keyspace).stats().to_dict()

    def show(printer: Printer) -> None:
        printer.line(source)
        for title, part in found.items():
            if not isinstance(part, dict):
                continue
            printer.line()
            printer.heading(title)
            printer.fields((f"  {name}", value) for name, value in flatten(part))
        printer.line()
        printer.table(level_stats.COLUMNS, level_stats.level_rows(found))
        for alarm in found["alarms"]:
            printer.sentence(alarm["message"], "alarm: ")

    out.result({"live": sample is not None, "pid": pid, "stats": found}, show)
