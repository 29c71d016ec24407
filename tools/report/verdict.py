"""The report's verdict: what is wrong with a database, most important first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lsmkv_tool.db import stats_export
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import html, units
from lsmkv_tool.render.columns import Row
from lsmkv_tool.report.quick_verify import Checked

if TYPE_CHECKING:
    from lsmkv.options import Options

MAX_LISTED = 12
MIN_FREE = 256 << 20
MIN_GARBAGE = 64 << 20
STOPPED_SECONDS = 1.0
TITLES = {"damaged": "Damaged", "attention": "Needs attention", "healthy": "Healthy"}
CARDS = {"damaged": "bad", "attention": "warning", "healthy": "good"}


@dataclass(frozen=True)
class Problem:
    kind: str  # "bad" for damage, "warning", or "note" for what needs no action
    text: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Verdict:
    problems: list[Problem]
    checked: Checked

    @property
    def name(self) -> str:
        kinds = {problem.kind for problem in self.problems}
        return "damaged" if "bad" in kinds else "attention" if "warning" in kinds else "healthy"

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def card(self) -> str:
        shown = [(problem.kind, problem.text) for problem in self.problems[:MAX_LISTED]]
        if len(self.problems) > MAX_LISTED:
            shown.append(("note", f"{len(self.problems) - MAX_LISTED} more; `lsmkv-tool verify` lists all damage"))
        text = self.checked.text[0].upper() + self.checked.text[1:] + "."
        return html.verdict(CARDS[self.name], self.title, text, shown)


def damage(checked: Checked) -> Iterator[Problem]:
    for row in checked.findings:
        place = "" if row["offset"] is None else f", offset {row['offset']}"
        yield Problem("bad", f"{row['file']}{place}: {row['problem']}")


def alarms(samples: Sequence[tuple[str, stats_export.Sample]]) -> Iterator[Problem]:
    """Yield the alarms of the running database by keyspace, and long stops of writers."""
    for keyspace, sample in samples:
        for alarm in sample.stats["alarms"]:
            yield Problem("warning", f"keyspace {keyspace}: {alarm['message']}" if keyspace else alarm["message"])
    for _, sample in samples[:1]:
        health = sample.stats.get("health", {})  # an earlier release has none
        if health.get("read_only"):
            yield Problem("warning", f"the running database takes no more writes: {health['read_only']}")
        elif health.get("last_error"):
            yield Problem("warning", f"the last error in the background: {health['last_error']}")
        stopped = sample.stats["stalls"]["stop_seconds"]
        if stopped >= STOPPED_SECONDS:
            text = f"writers were stopped for {stopped:.1f} s in all, because flushes or compactions were behind"
            yield Problem("warning", text)
        if sample.stale:
            age = units.duration(sample.age * 1e9)
            yield Problem("note", f"the statistics are {age} old: no process has updated them since")


def shape(tree: Tree, options: Options) -> Iterator[Problem]:
    """Yield what the manifest and the directory show."""
    for _, stored in sorted(tree.state.trees.items()):
        of = options.for_keyspace(stored.options)
        n, name = len(stored.version.levels[0]), f"keyspace {stored.name}: " if stored.name else ""
        if n >= of.l0_slowdown_trigger:
            yield Problem(
                "warning", f"{name}L0 has {n} tables; from {of.l0_slowdown_trigger} on writes are slowed down"
            )
    space = os.statvfs(tree.directory.path)
    free, used = space.f_bavail * space.f_frsize, sum(meta.size for meta in tree.all_metas)
    if free < max(MIN_FREE, used // 10):
        yield Problem("warning", f"the file system has {units.size(free)} left; compactions need room for their output")
    obsolete = tree.obsolete
    if obsolete:
        size = units.size(sum(entry.size for entry in obsolete))
        yield Problem("note", f"{len(obsolete)} obsolete files hold {size}; the next open for writing removes them")


def value_logs(rows: Sequence[Row], options: Options) -> Iterator[Problem]:
    live, garbage = (sum(row[name] or 0 for row in rows) for name in ("live", "garbage"))
    if garbage > MIN_GARBAGE and live + garbage > 1.2 * options.value_gc_ratio * live:
        yield Problem(
            "warning",
            f"value logs hold {units.size(garbage)} of garbage beside {units.size(live)} of live values; a compaction "
            "collects it",
        )


def filters(tables: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    for row in tables:
        if row["verdict"] == "worse":
            rates = units.percent(row["measured_fpr"], 3), units.percent(row["expected_fpr"], 3)
            yield Problem("warning", f"the filter of {row['file']} has {rates[0]} false positives, {rates[1]} expected")
