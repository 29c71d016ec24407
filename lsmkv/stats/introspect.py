"""What an open database reports about itself: stats, explain, properties, sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from lsmkv import notebook
from lsmkv.compaction.counters import Counters
from lsmkv.compaction.picker import level_scores, level_targets, pending_bytes
from lsmkv.compaction.scheduler import Scheduler
from lsmkv.compaction.tree_work import TreeWork
from lsmkv.errors import KeyspaceError
from lsmkv.filters import policy
from lsmkv.options import Options
from lsmkv.stats.metrics import Stats, TableInfo, make_stats
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import KeyRange, TableMeta, Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port import codecs, zstd
from lsmkv_ext.reader import Reader

# Stats ----------------------------------------------------------------------------------------------------


def stats(work: TreeWork, background: Counters) -> Stats:
    tree, versions = work.tree, work.tree.versions
    with versions.lock:
        version = tree.current
        counters = versions.engine.counters(tree.live)
        counters["stops"] += background.stops
        counters["stop_ns"] += background.stop_ns
        done = background.to_dict()
        memtables = _memtables(tree)
        active, waiting = memtables[:1], memtables[1:]
        memtable = {
            "bytes": sum(m.used_bytes for m in active),
            "entries": sum(m.entries for m in active),
            "immutable": len(waiting),
            "immutable_bytes": sum(m.used_bytes for m in waiting),
        }
        infos = tree.filter_infos()
        remembered = {table.number: table.remembered_bytes for table in tree.tables()}
        values = versions.values.totals(versions.state.files())
        memory = _split(versions)
        refusal = versions.engine.refusal
    owed = policy.debts(version, work.jobs.policy(version), infos, versions.state.seed)
    now = tree.judge_time()
    tables = [
        table_info(level, f, infos[f.number], owed.get(f.number), now, remembered[f.number])
        for level, files in enumerate(version.levels)
        for f in files
    ]
    state: dict[str, Any] = {"cache": versions.cache.stats(), "memtable": memtable, "values": values, "memory": memory}
    return make_stats(counters, tables, background=done, refusal=refusal, **state)


def _split(versions: VersionSet) -> dict[str, int | None]:
    options = versions.options
    return {
        "limit": options.memory,
        "write_buffers": options.write_buffer_size * options.max_write_buffers,
        "block_cache": options.block_bytes,
        "row_cache": options.row_bytes,
        "tables": sum(t.memory for t in versions.tables.values()),
    }


def stats_by_name(scheduler: Scheduler) -> dict[str, Stats]:
    """The statistics of all keyspaces. The default one has the name ""."""
    with scheduler.versions.lock:
        trees = {tree.state.name: tree for tree in scheduler.versions.trees.values()}
    found = {}
    for name, tree in trees.items():
        with suppress(KeyspaceError):  # it was dropped meanwhile
            found[name] = stats(scheduler.work_of(tree), scheduler.counters)
    return found


def _memtables(tree: StoredTree) -> list[Memtable]:
    """Newest first; the active one leads."""
    state = tree.live.state
    return [] if state is None else state.memtables


def table_info(
    level: int, f: TableMeta, info: Mapping[str, Any], debt: str | None, now: int, remembered: int
) -> TableInfo:
    return TableInfo(
        level=level,
        number=f.number,
        size=f.size,
        entries=f.entries,
        filter_bytes=info["bytes"],
        filter_keys=info["n_keys"],
        kind=info["kind"],
        millibits=info["millibits"],
        n_blocks=info["n_blocks"],
        fill_ratio=info["fill_ratio"],
        problem=info["problem"],
        debt=debt,
        raw_bytes=f.raw_bytes,
        expired_bytes=f.expired_bytes(now),
        remembered_bytes=remembered,
        compression=info["compression"],
    )


# Explain --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One source that a lookup probed."""

    source: str  # "memtable" or "table"
    result: str  # "found", "absent", "deleted", "range-deleted"
    ns: int
    sequence: int | None = None
    level: int | None = None
    file: int | None = None
    filter: str | None = None  # "no", "maybe", "none", "damaged"
    filter_kind: str | None = None  # "bloom" or "fuse"
    false_positive: bool = False
    designed_fpr: float | None = None
    block: int | None = None
    read_from: str | None = None  # "cache" or "disk"
    bytes: int = 0

    def __str__(self) -> str:
        place = self.source if self.level is None else f"L{self.level} {self.file:06d}.sst"
        parts = [f"{place}:"]
        if self.filter is not None:
            kind = "fuse filter" if self.filter_kind == "fuse" else "filter"
            parts.append(f"{kind} {self.filter}{' (false)' if self.false_positive else ''},")
        if self.block is not None and self.read_from is not None:
            parts.append(f"block {self.block} from {self.read_from}, {self.bytes} bytes,")
        parts.append(f"{self.result}, {self.ns} ns")
        return " ".join(parts)


@dataclass(frozen=True)
class Explain:
    """The trace of one lookup, as `db.explain` returns it. `str()` is the readable form.

    >>> db.put(b"ada", b"1815")
    >>> db.explain(b"ada").steps[0].source
    'memtable'
    """

    key: bytes
    found: bool
    sequence: int
    steps: tuple[Step, ...]

    @property
    def ns(self) -> int:
        """The nanoseconds of all steps.

        >>> db.explain(b"ada").ns >= 0
        True
        """
        return sum(step.ns for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as plain data.

        >>> db.explain(b"ada").to_dict()["found"]
        False
        """
        return {**asdict(self), "ns": self.ns}

    @property
    def _head(self) -> str:
        return f"{self.key!r}: {'found' if self.found else 'not found'} in {self.ns} ns, {len(self.steps)} steps"

    def __str__(self) -> str:
        return "\n".join([self._head, *(f"  {step}" for step in self.steps)])

    def _repr_html_(self) -> str:
        return notebook.paragraph(self._head) + notebook.table(map(_cells, self.steps), STEP_HEADINGS)


STEP_HEADINGS = ("source", "filter", "designed FPR", "block", "from", "bytes", "result", "us")


def _cells(step: Step) -> tuple[str, ...]:
    source = step.source if step.level is None else f"L{step.level} {step.file:06d}.sst"
    verdict = "" if step.filter is None else f"{step.filter}{' (false)' if step.false_positive else ''}"
    return (
        source,
        verdict if step.filter_kind != "fuse" else f"{verdict}, fuse",
        "" if step.designed_fpr is None else f"{step.designed_fpr:.2%}",
        "" if step.block is None else str(step.block),
        step.read_from or "",
        f"{step.bytes:,}" if step.bytes else "",
        step.result,
        f"{step.ns / 1000:.1f}",
    )


def explain(reader: Reader, key: bytes) -> Explain:
    raw = reader._explain(key)
    return Explain(raw["key"], raw["found"], raw["sequence"], tuple(_step(step) for step in raw["steps"]))


def _step(raw: Mapping[str, Any]) -> Step:
    names = {name: raw[name] for name in Step.__dataclass_fields__ if name in raw}
    return Step(**names, read_from=raw.get("from"))


# Sizes ----------------------------------------------------------------------------------------------------


def approximate_len(tree: StoredTree) -> int:
    with tree.versions.lock:
        tables = sum(f.entries - 2 * f.deletes for f in tree.current.files())
        waiting = sum(m.entries - 2 * m.deletes for m in _memtables(tree))
    return max(tables + waiting, 0)


def approximate_size(tree: StoredTree, start: bytes | None, stop: bytes | None) -> int:
    """Bytes of table files in [start, stop): whole files by size, partial ones by their index."""
    span = KeyRange(start, stop, exclusive=True)
    with tree.versions.lock:
        version = tree.current
        tables = {table.number: table for table in tree.tables()}
    total = 0
    for level in range(len(version.levels)):
        for f in version.overlapping(level, span):
            total += _share(f, tables[f.number], start, stop)
    return total


def _share(f: TableMeta, table: Any, start: bytes | None, stop: bytes | None) -> int:
    low = 0 if start is None or start <= f.smallest else table.offset_of(start)
    high = f.size if stop is None or stop > f.largest else table.offset_of(stop)
    return int(max(high - low, 0))


# Properties -----------------------------------------------------------------------------------------------


def _levels(version: Version, options: Options) -> str:
    targets, scores = level_targets(version, options), level_scores(version, options)
    lines = ["level  files        bytes      entries   score target"]
    for level in range(version.last_level + 1):
        files = version.levels[level]
        entries = sum(f.entries for f in files)
        target = "" if targets[level] == float("inf") else f"{targets[level]:.0f}"
        lines.append(f"L{level:<5} {len(files):5} {version.sizes[level]:12} {entries:12} {scores[level]:7.2f} {target}")
    return "\n".join(lines)


def _sstables(version: Version) -> str:
    return "\n".join(
        f"L{level} {f.number:06d}.sst {f.size} bytes, {f.entries} entries, {f.smallest!r} .. {f.largest!r}"
        for level, files in enumerate(version.levels)
        for f in files
    )


def _memory(versions: VersionSet) -> dict[str, int]:
    with versions.lock:
        return {
            "memtables": sum(m.memory for m in versions.engine.memtables),
            "tables": sum(t.memory for t in versions.tables.values()),
            "block_cache": versions.cache.used,
        }


PROPERTIES: dict[str, Callable[[Scheduler, StoredTree], str]] = {
    "lsmkv.codecs": lambda s, t: json.dumps({**codecs.describe(), "zstd": zstd.describe()}),
    "lsmkv.levels": lambda s, t: _levels(t.current, t.options),
    "lsmkv.sstables": lambda s, t: _sstables(t.current),
    "lsmkv.stats": lambda s, t: json.dumps(stats(s.work_of(t), s.counters).to_dict()),
    "lsmkv.options": lambda s, t: json.dumps(t.options.to_dict()),
    "lsmkv.memory": lambda s, t: json.dumps(_memory(t.versions)),
    "lsmkv.total-sst-bytes": lambda s, t: str(t.current.total_bytes),
    "lsmkv.num-files": lambda s, t: str(sum(1 for _ in t.current.files())),
    "lsmkv.num-immutable-memtables": lambda s, t: str(len(_memtables(t)[1:])),
    "lsmkv.num-running-jobs": lambda s, t: str(len(s.work_of(t).claims.running)),
    "lsmkv.pending-compaction-bytes": lambda s, t: str(pending_bytes(t.current, t.options)),
    "lsmkv.last-sequence": lambda s, t: str(t.versions.engine.last_seq),
    "lsmkv.seed": lambda s, t: f"{t.versions.state.seed:016x}",
    "lsmkv.background-errors": lambda s, t: str(s.counters.errors),
    "lsmkv.estimate-num-keys": lambda s, t: str(approximate_len(t)),
}
PER_LEVEL = "lsmkv.num-files-at-level"


def lookup_property(scheduler: Scheduler, tree: StoredTree, name: str) -> str | None:
    if name.startswith(PER_LEVEL):
        suffix = name[len(PER_LEVEL) :]
        levels = tree.current.levels
        return str(len(levels[int(suffix)])) if suffix.isdecimal() and int(suffix) < len(levels) else None
    found = PROPERTIES.get(name)
    return None if found is None else found(scheduler, tree)
