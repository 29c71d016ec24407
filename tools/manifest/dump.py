"""`manifest dump`: print the edits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.exits import FINDING
from lsmkv_tool.manifest.reader import ManifestFile, format_time
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Row
from lsmkv_tool.render.output import Output

if TYPE_CHECKING:
    from lsmkv.version.edit import TreeEdit
    from lsmkv.version.manifest import Record
    from lsmkv.version.version import TableMeta

INDENT = " " * 10


def file_row(out: Output, level: int, meta: TableMeta) -> Row:
    return {
        "number": meta.number,
        "level": level,
        "size": meta.size,
        "entries": meta.entries,
        "min_seq": meta.min_seq,
        "max_seq": meta.max_seq,
        "smallest": out.key(meta.smallest),
        "largest": out.key(meta.largest),
    }


def tree_row(out: Output, edit: TreeEdit) -> Row:
    return {
        "added": [file_row(out, level, meta) for level, meta in edit.added],
        "removed": list(edit.removed),
        "moved": [{"number": number, "level": level} for number, level in edit.moved],
        "shift": edit.shift,
    }


def keyspace_row(out: Output, edit: TreeEdit) -> Row:
    options = None if edit.options is None else json.dumps(edit.options, sort_keys=True)
    created = {"id": edit.keyspace, "name": edit.name, "options": options, "dropped": edit.dropped}
    return created | tree_row(out, edit)


def edit_row(out: Output, record: Record) -> Row:
    """Return an edit as a row. Changes of named keyspaces are in `keyspaces`, those of the default one beside it."""
    from lsmkv.version.edit import TreeEdit

    edit = record.edit
    default = next((tree for tree in edit.trees if not tree.keyspace), TreeEdit())
    return {
        "offset": record.offset,
        "time": format_time(edit.time_us),
        "reason": edit.reason or None,
        **tree_row(out, default),
        "keyspaces": [keyspace_row(out, tree) for tree in edit.trees if tree.keyspace],
        "next_file": edit.next_file,
        "last_seq": edit.last_seq,
        "log_number": edit.log_number,
    }


def edit_text(row: Row) -> str:
    time = units.clock_text(row["time"]) if row["time"] else "-"
    numbers = [f"{name}={row[name]}" for name in ("next_file", "last_seq", "log_number") if row[name] is not None]
    lines = ["  ".join([f"{row['offset']:>8}", time, row["reason"] or "-"])]
    lines += [INDENT + "  ".join(numbers)] if numbers else []
    lines += tree_lines(row)
    for keyspace in row["keyspaces"]:
        lines += [*keyspace_lines(keyspace), *tree_lines(keyspace)]
    return "\n".join(lines)


def keyspace_lines(row: Row) -> list[str]:
    parts = [f"{INDENT}keyspace {row['id']}"]
    if row["name"] is not None:
        parts.append(f"created as {row['name']!r}")
    if row["dropped"]:
        parts.append("dropped")
    options = [] if row["options"] is None else [f"{INDENT}  options {row['options']}"]
    return ["  ".join(parts), *options]


def tree_lines(row: Row) -> list[str]:
    lines = []
    if row["shift"]:
        lines.append(f"{INDENT}levels shifted by {row['shift']:+}")
    for number in row["removed"]:
        lines.append(f"{INDENT}- {number:06d}")
    for move in row["moved"]:
        lines.append(f"{INDENT}> {move['number']:06d} to L{move['level']}")
    for file in row["added"]:
        lines.append(
            f"{INDENT}+ {file['number']:06d} L{file['level']}  {units.size(file['size'])}  "
            f"{units.count(file['entries'])} entries  seq {file['min_seq']}..{file['max_seq']}"
        )
        lines.append(f"{INDENT}  [{file['smallest']} .. {file['largest']}]")
    return lines


@declare("manifest dump", example="lsmkv-tool manifest dump mydb", key_format=True)
@path_argument("path", "DB|FILE")
def dump(out: Output, path: str) -> None:
    """Print every edit in order, up to the first damage. Times are in UTC."""
    manifest = ManifestFile(path)
    if manifest.problem():
        out.exit = FINDING
    rows = (edit_row(out, record) for record in manifest.records)
    out.stream(rows, edit_text, tail=lambda: {"problem": manifest.problem()})
    manifest.report_problem(out)
