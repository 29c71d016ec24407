"""`manifest summarize`: print the state after the last edit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.manifest.reader import ManifestFile
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Row
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer

if TYPE_CHECKING:
    from lsmkv.version.manifest import TreeState


def keyspace_row(keyspace: int, tree: TreeState) -> Row:
    return {
        "id": keyspace,
        "name": tree.name,
        "files": [len(files) for files in tree.version.levels],
        "bytes": list(tree.version.sizes),
    }


def level_counts(files: list[int]) -> str:
    return " ".join(f"L{level}:{n}" for level, n in enumerate(files) if n) or "none"


@declare("manifest summarize", example="lsmkv-tool manifest summarize mydb")
@path_argument("path", "DB|FILE")
def summarize(out: Output, path: str) -> None:
    """Print the state after the last edit, and the number of edits by reason."""
    manifest = ManifestFile(path)
    state, problem = manifest.state, manifest.problem()
    reasons = Counter(record.edit.reason or "unnamed" for record in manifest.records)
    default = state.trees[0].version
    keyspaces = [keyspace_row(keyspace, tree) for keyspace, tree in sorted(state.trees.items()) if keyspace]
    data = {
        "file": manifest.path,
        "size": manifest.size,
        "edits": len(manifest.records),
        "reasons": reasons,
        "next_file": state.next_file,
        "last_seq": state.last_seq,
        "log_number": state.log_number,
        "files": [len(files) for files in default.levels],
        "bytes": list(default.sizes),
        "format": state.format_version,
        "keyspaces": keyspaces,
        "torn_bytes": state.torn_bytes,
        "problem": problem["problem"] if problem else None,
    }

    def show(printer: Printer) -> None:
        printer.fields(
            [
                ("manifest", manifest.path),
                ("size", units.size(manifest.size)),
                ("edits", ", ".join(f"{n} {name}" for name, n in reasons.items()) or "none"),
                ("next file", state.next_file),
                ("last sequence", state.last_seq),
                ("oldest live log", state.log_number),
                ("format", state.format_version),
                ("tables", level_counts(data["files"])),
                ("bytes", units.size(default.total_bytes)),
            ]
        )
        for row in keyspaces:
            printer.line()
            printer.heading(f"keyspace {row['name']}")
            size = units.size(sum(row["bytes"]))
            printer.fields([("  id", row["id"]), ("  tables", level_counts(row["files"])), ("  bytes", size)])

    out.result(data, show, finding=problem is not None)
    manifest.report_problem(out)
