"""The page: what it is about, and its sections in order."""

from __future__ import annotations

import os
import time
from html import escape
from pathlib import Path
from typing import Any

from lsmkv_tool.db import stats_export
from lsmkv_tool.db.info import totals
from lsmkv_tool.db.stored_options import read_options
from lsmkv_tool.manifest.levels import level_rows
from lsmkv_tool.manifest.reader import ManifestFile
from lsmkv_tool.manifest.timeline import timeline_rows
from lsmkv_tool.manifest.tree import Tree, load_tree, with_tree
from lsmkv_tool.render import html, units
from lsmkv_tool.report import activity, filters, history, storage, tree, verdict
from lsmkv_tool.report.quick_verify import LIMIT, Checked, quick_verify
from lsmkv_tool.report.verdict import Verdict
from lsmkv_tool.vlog.summary import summarize as value_logs


def build_page(db: str, keyspace: str = "", limit: int = LIMIT) -> tuple[str, Verdict]:
    """Return the page and the verdict in it. If damage hides the tree, the page has the verdict alone."""
    from lsmkv.errors import CorruptionError

    checked = quick_verify(db, limit)
    try:
        return _whole_page(db, keyspace, checked)
    except CorruptionError:
        if not checked.findings:
            raise
        found = Verdict(list(verdict.damage(checked)), checked)
        advice = "Damage hides the tree. `lsmkv-tool repair` shows what it can recover."
        return _page(db, "", found, "", html.section("Nothing else to show", html.note(advice))), found


def chosen_keyspace(db: str, wanted: str) -> str:
    """Return the wanted keyspace, or instead of an empty default one the largest."""
    trees = load_tree(db).state.trees
    if wanted or trees[0].version.total_bytes:
        return wanted
    return max(trees.values(), key=lambda stored: stored.version.total_bytes).name


def _whole_page(db: str, wanted: str, checked: Checked) -> tuple[str, Verdict]:
    keyspace = chosen_keyspace(db, wanted)
    shown, tables = with_tree(db, lambda tree: (tree, list(filters.measured_tables(tree))), keyspace)
    options = read_options(shown.directory)
    sample = stats_export.read_sample(db, keyspace)
    names = [stored.name for _, stored in sorted(shown.state.trees.items())]
    samples = [(name, each) for name in names if (each := stats_export.read_sample(db, name)) is not None]
    found = Verdict(
        [
            *verdict.damage(checked),
            *verdict.alarms(samples),
            *verdict.shape(shown, options),
            *verdict.value_logs(value_logs(db), options),
            *verdict.filters(tables),
        ],
        checked,
    )
    found.problems.sort(key=lambda problem: ("bad", "warning", "note").index(problem.kind))
    return _page(db, keyspace, found, *_contents(db, shown, tables, sample)), found


def _contents(
    db: str, shown: Tree, tables: list[dict[str, Any]], sample: stats_export.Sample | None
) -> tuple[str, str]:
    """Return the tiles and the sections."""
    keyspace = shown.stored.name
    options = read_options(shown.directory)
    mine = options.for_keyspace(shown.stored.options)
    absent = stats_export.absent_share(db, keyspace)
    changes = list(timeline_rows(ManifestFile(db)))
    levels = level_rows(shown)
    sections = [
        tree.keyspace_section(shown),
        tree.tree_section(shown, levels, f"Tree of keyspace {keyspace}" if keyspace else "Tree"),
        filters.saved_section(sample),
        filters.filter_section(shown, tables, stats_export.observed_fpr(db, keyspace)),
        filters.advice_section(shown, 1.0 if absent is None else absent, absent is not None),
        activity.activity_section(shown, mine, sample, changes),
        storage.space_section(shown),
        storage.log_section(db),
        history.history_section(changes),
        storage.option_section(mine, keyspace),
    ]
    return tiles(shown, levels, sample), "".join(sections)


def tiles(shown: Tree, levels: list[dict[str, Any]], sample: stats_export.Sample | None) -> str:
    total = totals(shown)
    wasted = sum(row["expected_wasted_reads"] for row in levels)
    parts = [
        (units.count(total["entries"]), "entries in tables"),
        (units.size(total["table_bytes"]), f"in {units.counted(total['tables'], 'table')}"),
        (units.size(total["filter_bytes"]), "of filters"),
        (f"{wasted:.3f}", "wasted reads per absent key"),
    ]
    if sample is not None:
        parts.append((units.percent(sample.stats["cache"]["hit_ratio"], 1), "cache hits"))
        parts.append((activity.ratio(sample.stats["compaction"]["write_amplification"]), "write amplification"))
    return "".join(html.tile(value, name) for value, name in parts)


def _page(db: str, keyspace: str, found: Verdict, tiles: str, sections: str) -> str:
    from importlib.metadata import version

    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return html.page(
        name=escape(Path(os.path.abspath(db)).name),
        subtitle=escape(f"{db}{f', keyspace {keyspace}' if keyspace else ''}, {made}"),
        verdict=found.card(),
        tiles=tiles,
        sections=sections,
        version=escape(version("lsmkv")),
    )
