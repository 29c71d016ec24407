"""The `db` commands that look at a database from outside: info, levels, space, find, properties, stats."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import live, top_levels, units
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db_group import db, reading
from lsmkv_tool.keys import KEY
from lsmkv_tool.keyspace import paint
from lsmkv_tool.output import Column, Human, Output, num
from lsmkv_tool.tree import Tree, level_rows, steady


def totals(tree: Tree) -> dict[str, Any]:
    files = [meta for _, meta in tree.files]
    return {
        "tables": len(files),
        "levels": sum(1 for level in tree.levels if level),
        "table_bytes": sum(meta.size for meta in files),
        "entries": sum(meta.entries for meta in files),
        "deletes": sum(meta.deletes for meta in files),
        "range_tombstones": sum(meta.range_tombstones for meta in files),
        "index_bytes": sum(meta.index_bytes for meta in files),
        "filter_bytes": sum(meta.filter_bytes for meta in files),
        "logs": len(tree.live_logs),
        "log_bytes": sum(entry.size for entry in tree.live_logs),
    }


@declare(db, example="lsmkv-tool db info mydb", keys=True)
@path_argument()
def info(out: Output, db: str) -> None:
    """What the database is: tables, entries, key range, logs, memory its filters and indexes need."""
    from lsmkv.lockfile import is_locked

    tree = steady(db, lambda tree: tree)
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
        "in_use": is_locked(db),
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
                ("in use", "yes: a process has it open for writing" if data["in_use"] else "no"),
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
    tree = steady(db, lambda tree: tree)
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
    tree = steady(db, lambda tree: tree)
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
    add("range tombstones, properties, footers", len(files_), other)
    add("logs in use", len(tree.live_logs), sum(e.size for e in tree.live_logs), "space is allocated ahead")
    add("manifests", len(tree.of_kind("manifest")), sum(e.size for e in tree.of_kind("manifest")))
    small = [e for e in tree.entries if e.kind in ("current", "lock", "options", "stats", "synced")]
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


def versions_in_logs(tree: Tree, key: bytes) -> list[dict[str, Any]]:
    """Every write of the key that the logs still hold, newest first. Range tombstones that cover it count."""
    from lsmkv_ext.wal.dump import LogDump

    found = []
    for entry in tree.live_logs:
        for record in LogDump(tree.folder.file(entry.name)):
            for op, first, second, seq in record.get("operations", ()):
                if first == key if op != "delete_range" else first <= key < second:
                    value = second if op == "put" else None
                    found.append({"file": entry.name, "level": None, "seq": seq, "op": op, "value": value})
    return sorted(found, key=lambda row: -row["seq"])


def versions_in_tables(tree: Tree, key: bytes) -> list[dict[str, Any]]:
    """One row per table whose key range holds the key: what its filter said, and the entry if it has one."""
    from lsmkv_tool.tables import open_table

    rows = []
    for level, meta in tree.files:
        if not meta.smallest <= key <= meta.largest:
            continue
        with open_table(tree.path(meta), meta.global_seq) as table:
            verdict = table.probe(key)
            entry = table.find(key)
            covering = [seq for start, stop, seq in table.range_tombstones if start <= key < stop]
        said = ("maybe" if verdict["maybe"] else "no") if verdict["usable"] else "no filter"
        row = {"file": f"{meta.number:06d}.sst", "level": level, "filter": said}
        if entry is not None:
            op = "delete" if entry[0] is None else "put"
            rows.append(row | {"seq": entry[1], "op": op, "value": entry[0]})
        for seq in covering:
            rows.append(row | {"seq": seq, "op": "delete_range", "value": None})
        if entry is None and not covering:
            rows.append(row | {"seq": None, "op": None, "value": None})
    return rows


@declare(db, example="lsmkv-tool db find mydb user:00042", keys=True, values=True)
@path_argument()
@click.argument("key", type=KEY)
def find(out: Output, db: str, key: bytes) -> None:
    """Show every version of KEY: file, level, sequence number, what the filter said; newest first.

    Tables whose key range holds the key but that have no entry are shown too: `no` is a read the filter
    saved, `maybe` one it did not. Exits 1 if no version is found.
    """

    def look(tree: Tree) -> list[dict[str, Any]]:
        return [{"filter": None, **row} for row in versions_in_logs(tree, key)] + versions_in_tables(
            tree, key
        )

    rows = steady(db, look)
    known = [row for row in rows if row["seq"] is not None]
    current = max(known, key=lambda row: row["seq"], default=None)
    for row in rows:
        row["value"] = out.value(row["value"])
        row["current"] = row is current
    columns = [
        num("level", "level", lambda level: f"L{level}"),
        Column("file", "file"),
        Column("filter", "filter"),
        num("seq", "seq"),
        Column("op", "op"),
        Column("", "current", lambda yes: "<- current" if yes else ""),
        Column("value", "value"),
    ]
    out.rows(rows, columns, finding=not known, empty="no table's key range holds the key")


def flatten(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested figures as dotted names."""
    if isinstance(value, dict):
        named = ((f"{prefix}.{name}" if prefix else name, inner) for name, inner in value.items())
        return [pair for name, inner in named for pair in flatten(inner, name)]
    return [(prefix, value)]


@declare(db, example=("lsmkv-tool db properties mydb", "lsmkv-tool db properties mydb lsmkv.levels"))
@path_argument()
@click.argument("names", nargs=-1)
def properties(out: Output, db: str, names: tuple[str, ...]) -> None:
    """Print the database's named properties, all or those given; exits 1 for a name it does not have."""
    from lsmkv.stats.introspect import PROPERTIES

    with reading(db) as handle:
        found = {name: handle.property(name) for name in names or PROPERTIES}
    rows = [{"name": name, "value": value} for name, value in found.items()]

    def show(human: Human) -> None:
        for name, value in found.items():
            text = "unknown property" if value is None else value
            human.line(f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}")

    missing = any(value is None for value in found.values())
    if out.mode == "human":
        out.result({}, show, finding=missing)
    else:
        out.rows(rows, [], finding=missing)


@declare(db, example="lsmkv-tool db stats mydb")
@path_argument()
def stats(out: Output, db: str) -> None:
    """Print what the database counted: reads, filters, cache, log, flushes, compactions, stalls.

    The figures of the running owner where it exports them (stats_export=True); otherwise those of the tables
    alone.
    """
    found = live.sample(db)
    if found is not None:
        source, figures = f"exported by process {found.pid}, {found.age:.1f} s ago", found.stats
    else:
        with reading(db) as handle:
            source, figures = "the tables alone: no owner exports figures", handle.stats().to_dict()

    def show(human: Human) -> None:
        human.line(source)
        for title, part in figures.items():
            if not isinstance(part, dict):
                continue
            human.line()
            human.heading(title)
            human.fields((f"  {name}", value) for name, value in flatten(part))
        human.line()
        human.table(top_levels.COLUMNS, top_levels.rows(figures))
        for alarm in figures["alarms"]:
            human.line(f"alarm: {alarm['message']}")

    live_ = found is not None
    pid = found.pid if found else None
    out.result({"live": live_, "pid": pid, "stats": figures}, show)
