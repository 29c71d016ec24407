"""The report's sections about disk space, logs, value logs and options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lsmkv_tool.db.space import OTHER, space_rows
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import html, units
from lsmkv_tool.render.columns import Column, Row
from lsmkv_tool.vlog.ls import COLUMNS as VALUE_LOG_COLUMNS
from lsmkv_tool.vlog.summary import summarize as value_logs
from lsmkv_tool.wal.ls import COLUMNS as LOG_COLUMNS
from lsmkv_tool.wal.summary import summarize_all

if TYPE_CHECKING:
    from lsmkv.options import Options

MAX_FILES = 20
OPTION_COLUMNS = [Column("option", "name"), Column("value", "value"), Column("default", "default")]


def space_section(tree: Tree) -> str:
    rows = [row for row in space_rows(tree) if row["bytes"]]
    total = sum(row["bytes"] for row in rows if row["what"] != OTHER)
    drawn: list[tuple[str, list[html.Bar]]] = [
        (row["what"], [(row["bytes"], "blue", f"{units.size(row['bytes'])}, {units.percent(row['bytes'] / total, 1)}")])
        for row in sorted(rows, key=lambda row: -row["bytes"])
        if row["what"] != OTHER
    ]
    saved = html.note("; ".join(f"{row['what']}: {row['note']}" for row in rows if row["note"]))
    return html.section("Disk space", html.note(f"{units.size(total)} in all."), html.bars(drawn), saved)


def log_section(db: str) -> str:
    """Logs, and value logs if there are any."""
    logs, values = summarize_all(db), list(value_logs(db))
    parts = [html.table(LOG_COLUMNS, logs) if logs else html.note("No logs.")]
    if values:
        live, garbage, size = (sum(row[name] or 0 for row in values) for name in ("live", "garbage", "size"))
        bars: list[html.Bar] = [
            (live, "green", f"{units.size(live)} live"),
            (garbage, "red", f"{units.size(garbage)} garbage"),
        ]
        label = f"{units.counted(len(values), 'file')}, {units.size(size)}"
        largest = sorted(values, key=lambda row: -row["garbage"])[:MAX_FILES]
        parts += [html.heading("Value logs"), html.bars([(label, bars)])]
        parts.append(html.details("Value logs with most garbage", html.table(VALUE_LOG_COLUMNS, largest)))
    return html.section("Logs", *parts)


def option_rows(options: Options) -> list[Row]:
    from lsmkv.options import Options

    usual = Options().to_dict()
    return [
        {"name": name, "value": json.dumps(value), "default": json.dumps(usual[name])}
        for name, value in sorted(options.to_dict().items())
    ]


def option_section(options: Options, keyspace: str) -> str:
    rows = option_rows(options)
    changed = [row for row in rows if row["value"] != row["default"]]
    title = f"Options of keyspace {keyspace}" if keyspace else "Options"
    shown = html.table(OPTION_COLUMNS, changed) if changed else html.note("All options have their defaults.")
    return html.section(title, shown, html.details(f"All {len(rows)} options", html.table(OPTION_COLUMNS, rows)))
