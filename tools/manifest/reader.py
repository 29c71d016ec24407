"""`manifest`: the log of version edits that says which tables make up the database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lsmkv_tool.command import declare, group, path_argument
from lsmkv_tool.directory import Folder, is_folder, kind_of, regular
from lsmkv_tool.exits import CannotOpen, Usage, opening
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Column, Human, Output, Row, num

if TYPE_CHECKING:
    from lsmkv.version.manifest import ManifestState, Record
    from lsmkv.version.version import FileMeta

manifest = group("manifest", "The record of which tables make up the database.")


def locate(path: str) -> tuple[str, int]:
    """(folder, number) of the manifest `path` names, or of the one that counts in the database `path`."""
    if is_folder(path):
        from lsmkv.version.manifest import read_current

        with opening(path):
            return path, read_current(path)
    kind, number = kind_of(os.path.basename(path))
    if kind != "manifest":
        raise Usage(f"{path} is not named like a manifest (MANIFEST-000001)")
    regular(path)
    return os.path.dirname(path) or ".", number


class Reading:
    """A manifest read as far as it goes: its records, the state after them, and what ended it."""

    def __init__(self, path: str) -> None:
        from lsmkv.version import manifest as format_
        from lsmkv.errors import CorruptionError
        from lsmkv.filenames import manifest_path

        self.folder, self.number = locate(path)
        self.path = manifest_path(self.folder, self.number)
        regular(self.path)
        with opening(self.path):
            data = format_.read_bounded(self.path, format_.MAX_RECORD)
        self.size = len(data)
        self.records: list[Record] = []
        self.state: ManifestState = format_.ManifestState(self.number)
        self.error: CorruptionError | None = None
        try:
            for record in format_.scan(data, self.number, self.path, self.state):
                self.records.append(record)
        except CorruptionError as error:
            self.error = error
        self.head_damage = format_.head_damage(data, self.number) if self.error is None else None

    def problem(self) -> dict[str, Any] | None:
        if self.error is not None:
            return {"problem": str(self.error), "file": self.path, "offset": self.error.offset}
        if self.head_damage is not None:
            return {"problem": self.head_damage, "file": self.path, "offset": 0}
        if not self.records:
            return {"problem": "holds no version", "file": self.path, "offset": self.size}
        if self.state.torn_bytes:
            what = f"{self.state.torn_bytes} bytes after the last record are none"
            return {"problem": what, "file": self.path, "offset": self.state.size}
        return None


def when(time_us: int) -> str | None:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds") if time_us else None


def file_row(out: Output, level: int, meta: FileMeta) -> Row:
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


def edit_row(out: Output, record: Record) -> Row:
    edit = record.edit
    return {
        "offset": record.offset,
        "time": when(edit.time_us),
        "reason": edit.reason or None,
        "added": [file_row(out, level, meta) for level, meta in edit.added],
        "removed": list(edit.removed),
        "moved": [{"number": number, "level": level} for number, level in edit.moved],
        "shift": edit.shift,
        "next_file": edit.next_file,
        "last_seq": edit.last_seq,
        "log_number": edit.log_number,
    }


def edit_lines(row: Row) -> str:
    head = [f"{row['offset']:>8}", row["time"] or "-", row["reason"] or "-"]
    numbers = ("next_file", "last_seq", "log_number")
    head += [f"{name}={row[name]}" for name in numbers if row[name] is not None]
    lines = ["  ".join(head)]
    if row["shift"]:
        lines.append(f"{'':10}levels shifted by {row['shift']:+}")
    for number in row["removed"]:
        lines.append(f"{'':10}- {number:06d}")
    for move in row["moved"]:
        lines.append(f"{'':10}> {move['number']:06d} to L{move['level']}")
    for file in row["added"]:
        lines.append(
            f"{'':10}+ {file['number']:06d} L{file['level']}  {units.size(file['size'])}  "
            f"{units.count(file['entries'])} entries  [{file['smallest']} .. {file['largest']}]  "
            f"seq {file['min_seq']}..{file['max_seq']}"
        )
    return "\n".join(lines)


def end(out: Output, reading: Reading) -> None:
    """After a listing of what could be read: says what ended it, exits 1."""
    problem = reading.problem()
    if problem:
        out.exit = 1
        out.note(f"lsmkv-tool: {problem['problem']} ({problem['file']}, offset {problem['offset']})")


@declare(manifest, example="lsmkv-tool manifest dump mydb", keys=True)
@path_argument("path", "DB|FILE")
def dump(out: Output, path: str) -> None:
    """Print every edit in order; on damage, every edit before it."""
    reading = Reading(path)
    if reading.problem():
        out.exit = 1
    rows = (edit_row(out, record) for record in reading.records)
    out.stream(rows, edit_lines, tail=lambda: {"problem": reading.problem()})
    end(out, reading)


def level_counts(levels: Sequence[Sequence[object]]) -> str:
    return " ".join(f"L{i}:{len(files)}" for i, files in enumerate(levels) if files) or "none"


@declare(manifest, example="lsmkv-tool manifest summarize mydb")
@path_argument("path", "DB|FILE")
def summarize(out: Output, path: str) -> None:
    """What the manifest amounts to: its state after the last edit, and how many edits of each reason."""
    reading = Reading(path)
    state = reading.state
    reasons: dict[str, int] = {}
    for record in reading.records:
        name = record.edit.reason or "unnamed"
        reasons[name] = reasons.get(name, 0) + 1
    data = {
        "file": reading.path,
        "size": reading.size,
        "edits": len(reading.records),
        "reasons": reasons,
        "next_file": state.next_file,
        "last_seq": state.last_seq,
        "log_number": state.log_number,
        "files": [len(files) for files in state.version.levels],
        "bytes": list(state.version.sizes),
        "torn_bytes": state.torn_bytes,
        "problem": (reading.problem() or {}).get("problem"),
    }

    def show(human: Human) -> None:
        human.fields(
            [
                ("manifest", data["file"]),
                ("size", units.size(reading.size)),
                ("edits", ", ".join(f"{n} {name}" for name, n in reasons.items()) or "none"),
                ("next file", state.next_file),
                ("last sequence", state.last_seq),
                ("oldest log needed", state.log_number),
                ("tables", level_counts(state.version.levels)),
                ("bytes", units.size(state.version.total_bytes)),
            ]
        )

    out.result(data, show, finding=reading.problem() is not None)
    end(out, reading)


def checked(db: str) -> tuple[Reading, list[Row]]:
    """The manifest, and where it and the folder disagree."""
    folder = Folder(db)
    reading = Reading(db)
    found: list[Row] = []
    problem = reading.problem()
    if problem:
        found.append({"severity": "error", **problem})
    present = {entry.number: entry for entry in folder.of_kind("table")}
    for meta in reading.state.version.files():
        entry = present.pop(meta.number, None)
        name = f"{meta.number:06d}.sst"
        if entry is None:
            found.append({"severity": "error", "problem": "table is missing", "file": name, "offset": None})
        elif entry.size != meta.size:
            what = f"table has {entry.size} bytes, the manifest says {meta.size}"
            offset = min(entry.size, meta.size)
            found.append({"severity": "error", "problem": what, "file": name, "offset": offset})
    for entry in present.values():
        what = "table is not in the manifest"
        found.append({"severity": "note", "problem": what, "file": entry.name, "offset": None})
    return reading, found


PROBLEMS = [
    Column("", "severity"),
    Column("file", "file"),
    num("offset", "offset"),
    Column("problem", "problem"),
]


@declare(manifest, example="lsmkv-tool manifest check mydb")
@path_argument()
def check(out: Output, db: str) -> None:
    """Hold the manifest against the folder: damage, missing tables, wrong sizes, tables nobody names.

    Exits 1 on a finding. Tables nobody names are leftovers the next opening removes: reported, no finding.
    """
    reading, found = checked(db)
    while any(row["severity"] == "error" for row in found):
        # A second look: the owner of a running database may have dropped a table between manifest and folder.
        again = checked(db)
        if again[1] == found:
            break
        reading, found = again
    failed = any(row["severity"] == "error" for row in found)
    tables = sum(map(len, reading.state.version.levels))
    fine = f"{reading.path}: {len(reading.records)} edits, {tables} tables, all as they should be"
    out.rows(found, PROBLEMS, finding=failed, empty=fine, edits=len(reading.records), tables=tables)


def timeline_rows(reading: Reading) -> Iterator[Row]:
    """One row per edit that changed the tree, with its totals afterwards."""
    from lsmkv.version.version import Version

    version = Version()
    known: dict[int, FileMeta] = {}
    for record in reading.records:
        edit = record.edit
        known.update({meta.number: meta for _, meta in edit.added})
        version = edit.apply(version)
        if not (edit.added or edit.removed or edit.moved or edit.shift):
            continue
        files = sum(map(len, version.levels))
        yield {
            "time": when(edit.time_us),
            "reason": edit.reason or None,
            "in_files": len(edit.removed),
            "in_bytes": sum(known[number].size for number in edit.removed),
            "out_files": len(edit.added),
            "out_bytes": sum(meta.size for _, meta in edit.added),
            "moved": len(edit.moved),
            "levels": sorted({level for level, _ in edit.added} | {level for _, level in edit.moved}),
            "files": files,
            "bytes": version.total_bytes,
            "l0_files": len(version.levels[0]),
        }


TIMELINE = [
    Column("time", "time"),
    Column("reason", "reason"),
    num("in", "in_files"),
    num("bytes in", "in_bytes", units.size),
    num("out", "out_files"),
    num("bytes out", "out_bytes", units.size),
    num("moved", "moved"),
    Column("to", "levels", lambda levels: " ".join(f"L{level}" for level in levels)),
    num("tables", "files"),
    num("L0", "l0_files"),
    num("bytes", "bytes", units.size),
]


@declare(manifest, example="lsmkv-tool manifest timeline mydb --last 5")
@path_argument("path", "DB|FILE")
@click.option("--last", type=click.IntRange(min=1), help="Only the last so many.")
def timeline(out: Output, path: str, last: int | None) -> None:
    """Show how the tree grew: every flush and compaction, what went in and out, and the totals after."""
    reading = Reading(path)
    rows = list(timeline_rows(reading))
    out.rows(
        rows[-last:] if last else rows,
        TIMELINE,
        empty="no table was ever written",
        finding=bool(reading.problem()),
    )
    end(out, reading)


def current_state(db: str) -> ManifestState:
    """The state of a database as its manifest gives it; damage raises."""
    reading = Reading(db)
    if reading.error is not None:
        raise reading.error
    if not reading.records:
        raise CannotOpen(f"{reading.path} holds no version", file=reading.path)
    return reading.state
