"""`manifest check`: compare the manifest with the directory."""

from __future__ import annotations

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import Directory
from lsmkv_tool.manifest.reader import ManifestFile
from lsmkv_tool.render.columns import FILE, Column, Row, num, prose
from lsmkv_tool.render.output import Output

COLUMNS = [
    Column("", "severity"),
    FILE,
    num("offset", "offset"),
    prose("problem", "problem"),
]


def compare(db: str) -> tuple[ManifestFile, list[Row]]:
    """Return the manifest, and where it and the directory disagree."""
    directory = Directory(db)
    manifest = ManifestFile(db)
    found: list[Row] = []
    problem = manifest.problem()
    if problem:
        found.append({"severity": "error", **problem})
    present = {entry.number: entry for entry in directory.of_kind("table")}
    for meta in manifest.state.files():
        entry = present.pop(meta.number, None)
        name = f"{meta.number:06d}.sst"
        if entry is None:
            found.append({"severity": "error", "problem": "missing table", "file": name, "offset": None})
        elif entry.size != meta.size:
            what = f"the table has {entry.size} bytes, the manifest says {meta.size}"
            offset = min(entry.size, meta.size)
            found.append({"severity": "error", "problem": what, "file": name, "offset": offset})
    for entry in present.values():
        what = "not in the manifest"
        found.append({"severity": "note", "problem": what, "file": entry.name, "offset": None})
    return manifest, found


def settled_comparison(db: str) -> tuple[ManifestFile, list[Row]]:
    """Compare until two results with errors are equal: a running database may drop a table between the reads."""
    manifest, found = compare(db)
    while any(row["severity"] == "error" for row in found):
        again = compare(db)
        if again[1] == found:
            break
        manifest, found = again
    return manifest, found


@declare("manifest check", example="lsmkv-tool manifest check mydb", table=True)
@path_argument()
def check(out: Output, db: str) -> None:
    """Compare the manifest with the directory: damage, missing tables, wrong sizes, obsolete tables.

    Exits 1 on an error. An obsolete table is a note, not an error: the next writable open removes it.
    """
    manifest, found = settled_comparison(db)
    failed = any(row["severity"] == "error" for row in found)
    edits, tables = len(manifest.records), sum(1 for _ in manifest.state.files())
    fine = f"{manifest.path}: {edits} edits, {tables} tables, no problem found"
    out.rows(found, COLUMNS, finding=failed, empty=fine, edits=edits, tables=tables)
