"""`manifest summarize`: print the state after the last edit."""

from __future__ import annotations

from collections import Counter

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.manifest.reader import ManifestFile
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer


@declare("manifest summarize", example="lsmkv-tool manifest summarize mydb")
@path_argument("path", "DB|FILE")
def summarize(out: Output, path: str) -> None:
    """Print the state after the last edit, and the number of edits by reason."""
    manifest = ManifestFile(path)
    state, problem = manifest.state, manifest.problem()
    reasons = Counter(record.edit.reason or "unnamed" for record in manifest.records)
    data = {
        "file": manifest.path,
        "size": manifest.size,
        "edits": len(manifest.records),
        "reasons": reasons,
        "next_file": state.next_file,
        "last_seq": state.last_seq,
        "log_number": state.log_number,
        "files": [len(files) for files in state.version.levels],
        "bytes": list(state.version.sizes),
        "torn_bytes": state.torn_bytes,
        "problem": problem["problem"] if problem else None,
    }

    def show(printer: Printer) -> None:
        tables = " ".join(f"L{i}:{len(files)}" for i, files in enumerate(state.version.levels) if files)
        printer.fields(
            [
                ("manifest", manifest.path),
                ("size", units.size(manifest.size)),
                ("edits", ", ".join(f"{n} {name}" for name, n in reasons.items()) or "none"),
                ("next file", state.next_file),
                ("last sequence", state.last_seq),
                ("oldest live log", state.log_number),
                ("tables", tables or "none"),
                ("bytes", units.size(state.version.total_bytes)),
            ]
        )

    out.result(data, show, finding=problem is not None)
    manifest.report_problem(out)
