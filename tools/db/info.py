"""`db info`: summarize a database."""

from __future__ import annotations

from typing import Any

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.manifest.levels import sum_metas
from lsmkv_tool.manifest.tree import Tree, load_tree
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer


def totals(tree: Tree) -> dict[str, Any]:
    return {
        "tables": len(tree.metas),
        "levels": sum(1 for level in tree.levels if level),
        "table_bytes": sum(meta.size for meta in tree.metas),
        **sum_metas(tree.metas),
        "logs": len(tree.live_logs),
        "log_bytes": sum(entry.size for entry in tree.live_logs),
    }


@declare("db info", example=("lsmkv-tool db info mydb", "lsmkv-tool db info shop --keyspace users"), key_format=True)
@path_argument()
@params.KEYSPACE
def info(out: Output, db: str, keyspace: str) -> None:
    """Summarize a database: tables, entries, key range, logs, memory for filters and indexes.

    It names the keyspaces; tables, entries and keys are those of one.
    """
    from lsmkv.lockfile import is_locked

    tree = load_tree(db, keyspace)
    first = min((meta.smallest for meta in tree.metas), default=None)
    last = max((meta.largest for meta in tree.metas), default=None)
    data: dict[str, Any] = {
        "path": db,
        "manifest": f"MANIFEST-{tree.state.number:06d}",
        "last_seq": tree.state.last_seq,
        "next_file": tree.state.next_file,
        **totals(tree),
        "smallest": out.key(first),
        "largest": out.key(last),
        "strangers": [entry.name for entry in tree.obsolete],
        "in_use": is_locked(db),
        "format": tree.state.format_version,
        "clock": units.moment(tree.state.clock),
        "keyspace": keyspace,
        "keyspaces": sorted(each.name for id_, each in tree.state.trees.items() if id_),
    }

    def show(printer: Printer) -> None:
        printer.fields(
            [
                ("database", db),
                *([("keyspace", keyspace)] if keyspace else []),
                *([("keyspaces", ", ".join(data["keyspaces"]))] if data["keyspaces"] else []),
                ("manifest", f"{data['manifest']}, {tree.state.records} edits, format {data['format']}"),
                ("last sequence", f"{tree.state.last_seq} in tables; logs may have later ones"),
                ("tables", f"{data['tables']} in {data['levels']} levels, {units.size(data['table_bytes'])}"),
                ("entries", units.count(data["entries"])),
                ("tombstones", units.count(data["deletes"])),
                ("keys", f"{out.key_text(first)} .. {out.key_text(last)}" if tree.metas else "no tables yet"),
                ("logs", f"{data['logs']}, {units.size(data['log_bytes'])}"),
                ("filters", units.size(data["filter_bytes"])),
                ("indexes", units.size(data["index_bytes"])),
                *([("clock", data["clock"])] if data["clock"] else []),
                ("obsolete files", ", ".join(data["strangers"]) or "none"),
                ("open for writing", "yes" if data["in_use"] else "no"),
            ]
        )

    out.result(data, show)
