"""The `db` commands that look at a database from outside: info, levels, space, find, properties, stats."""

from __future__ import annotations

from typing import Any

import click
from lsmkv_tool import units
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db_group import db
from lsmkv_tool.keyspace import paint
from lsmkv_tool.output import Column, Human, Output, num
from lsmkv_tool.tree import Tree, level_rows, load


def totals(tree: Tree) -> dict[str, Any]:
    files = [meta for _, meta in tree.files]
    return {
        "tables": len(files),
        "levels": sum(1 for level in tree.levels if level),
        "table_bytes": sum(meta.size for meta in files),
        "entries": sum(meta.entries for meta in files),
        "deletes": sum(meta.deletes for meta in files),
        "range_deletes": sum(meta.range_deletes for meta in files),
        "index_bytes": sum(meta.index_bytes for meta in files),
        "filter_bytes": sum(meta.filter_bytes for meta in files),
        "logs": len(tree.live_logs),
        "log_bytes": sum(entry.size for entry in tree.live_logs),
    }


@declare(db, example="lsmkv-tool db info mydb", keys=True)
@path_argument()
def info(out: Output, db: str) -> None:
    """What the database is: tables, entries, key range, logs, memory its filters and indexes need."""
    tree = load(db)
    files = [meta for _, meta in tree.files]
    first = min((meta.smallest for meta in files), default=None)
    last = max((meta.largest for meta in files), default=None)
    data: dict[str, Any] = {
        "path": db,
        "manifest": f"MANIFEST-{tree.state.number:06d}",
        "last_seq": tree.state.last_seq,
        "next_file": tree.state.next_file,
        **totals(tree),
        "smallest": out.key(first),
        "largest": out.key(last),
        "strangers": [entry.name for entry in tree.strangers],
    }

    def show(human: Human) -> None:
        human.fields(
            [
                ("database", db),
                ("manifest", f"{data['manifest']}, {tree.state.records} edits"),
                ("last sequence", f"{tree.state.last_seq} (in tables; the log may go further)"),
                ("tables", f"{data['tables']} in {data['levels']} levels, {units.size(data['table_bytes'])}"),
                ("entries", f"{units.count(data['entries'])}, {units.count(data['deletes'])} are deletes"),
                ("keys", f"{out.key_text(first)} .. {out.key_text(last)}" if files else "no tables yet"),
                ("logs", f"{data['logs']}, {units.size(data['log_bytes'])}"),
                ("filters", units.size(data["filter_bytes"])),
                ("indexes", units.size(data["index_bytes"])),
                ("left over", ", ".join(data["strangers"]) or "nothing"),
            ]
        )

    out.result(data, show)


LEVELS = [
    num("level", "level", lambda level: f"L{level}"),
    num("files", "files"),
    num("size", "bytes", units.size),
    num("entries", "entries", units.count),
    num("deletes", "deletes", units.count),
    num("bits/key", "bits_per_key", lambda bits: f"{bits:.1f}"),
    num("filters", "filter_bytes", units.size),
    num("wasted reads", "expected_wasted_reads", lambda x: f"{x:.4f}"),
]


def picture(rows: list[dict[str, Any]], width: int) -> list[str]:
    """The tree over its key range: neighbours alternate # and =, overlapping files show their number."""
    lines = []
    for row in rows:
        bar = paint([(span["start"], span["stop"]) for span in row["spans"]], width)
        lines.append(f"L{row['level']} |{bar}| {row['files']:>4} files  {units.size(row['bytes']):>9}")
    return lines


@declare(db, example="lsmkv-tool db levels mydb", keys=True)
@path_argument()
@click.option("--width", type=click.IntRange(8, 400), default=64, show_default=True, help="Of the picture.")
def levels(out: Output, db: str, width: int) -> None:
    """Draw the tree: the files of each level as bars over the key range, with sizes and filters.

    `wasted reads` is how many tables of the level a lookup of an absent key is expected to read for nothing.
    """
    tree = load(db)
    rows = level_rows(tree)

    def draw(human: Human) -> None:
        if rows:
            for line in picture(rows, width):
                human.line(line)
            human.line()

    out.rows(rows, LEVELS, before=draw, empty="no tables yet")


@declare(db, example="lsmkv-tool db space mydb")
@path_argument()
def space(out: Output, db: str) -> None:
    """Where the bytes on disk go: blocks, indexes, filters, logs, leftovers; and what compression saves."""
    tree = load(db)
    rows: list[dict[str, Any]] = []

    def add(what: str, count: int, size: int, note: str | None = None) -> None:
        rows.append({"what": what, "files": count, "bytes": size, "note": note})

    for level, files in enumerate(tree.levels):
        if files:
            raw, data = sum(m.raw_bytes for m in files), sum(m.data_bytes for m in files)
            saved = f"{raw / data:.2f} x smaller than raw" if data else None
            add(f"L{level} blocks", len(files), data, saved)
    files_ = [meta for _, meta in tree.files]
    add("indexes", len(files_), sum(meta.index_bytes for meta in files_))
    add("filters", len([m for m in files_ if m.filter_bytes]), sum(meta.filter_bytes for meta in files_))
    other = sum(meta.size - meta.data_bytes - meta.index_bytes - meta.filter_bytes for meta in files_)
    add("range deletes, properties, footers", len(files_), other)
    add("logs in use", len(tree.live_logs), sum(e.size for e in tree.live_logs), "allocated ahead")
    add("manifests", len(tree.of_kind("manifest")), sum(e.size for e in tree.of_kind("manifest")))
    small = [e for e in tree.entries if e.kind in ("current", "lock", "options", "stats")]
    add("small files", len(small), sum(e.size for e in small))
    spare = tree.strangers + tree.of_kind("temporary")
    add("leftovers", len(spare), sum(e.size for e in spare), "removed by the next opening" if spare else None)
    foreign = tree.of_kind("other")
    add("not ours", len(foreign), sum(e.size for e in foreign))
    total = sum(row["bytes"] for row in rows if row["what"] != "not ours")
    for row in rows:
        row["share"] = row["bytes"] / total if total else 0.0
    columns = [
        Column("what", "what"),
        num("files", "files"),
        num("bytes", "bytes", units.size),
        num("share", "share", lambda x: units.percent(x, 1)),
        Column("note", "note"),
    ]
    out.rows(rows, columns, total=total, after=lambda human: human.line(f"\ntotal {units.size(total)}"))
