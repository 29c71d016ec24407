"""`db.stats()` of an lsmkv database as text: filters, levels, and the other counters."""

from __future__ import annotations

from typing import Any

from ..units import format_size
from .text import align

FILTER_HEADER = [
    "level",
    "files",
    "keys",
    "lookups",
    "checks",
    "negatives",
    "false pos.",
    "observed",
    "designed",
    "blocks skipped",
    "bytes skipped",
    "filter memory",
]


def filter_stats(stats: Any) -> str:
    """One line per level that has files or lookups, then the total and the alarms."""
    rows = [_row(f"L{level.level}", level) for level in stats.levels if level.files or level.filter.lookups]
    lines = [align(FILTER_HEADER, [*rows, _row("all", stats.total)])]
    total = stats.total.filter
    if total.negatives:
        lines.append(
            f"{total.negatives:,} table reads were skipped ({total.useful_ratio:.1%} of the checks):"
            f" {total.blocks_skipped_disk:,} of them would have read the disk;"
            f" about {total.seconds_saved:.2f} s saved"
        )
    if total.fail_open:
        lines.append(f"{total.fail_open:,} lookups read the table because its filter is damaged")
    lines += [f"alarm: {alarm.message}" for alarm in stats.alarms]
    return "\n".join(lines)


def level_stats(stats: Any) -> str:
    rows = [[f"L{s.level}", f"{s.files:,}", format_size(s.bytes), f"{s.entries:,}"] for s in stats.levels if s.files]
    total = stats.total
    return align(
        ["level", "files", "size", "entries"],
        [*rows, ["all", f"{total.files:,}", format_size(total.bytes), f"{total.entries:,}"]],
    )


def engine_stats(stats: Any) -> str:
    """All counters that do not belong to a level, one group per line."""
    groups = ("reads", "writes", "cache", "log", "memtable", "flush", "compaction", "stalls")
    data = stats.to_dict()
    return "\n".join(
        f"{group}: " + ", ".join(f"{name} {_format(value)}" for name, value in data[group].items()) for group in groups
    )


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return " + ".join(f"{count:,} {name}" for name, count in value.items()) or "-"
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else f"{value:,}"


def _row(name: str, level: Any) -> list[str]:
    f = level.filter
    return [
        name,
        f"{level.files:,}",
        f"{f.keys:,}",
        f"{f.lookups:,}",
        f"{f.checks:,}",
        f"{f.negatives:,}",
        f"{f.false_positives:,}",
        _rate(f.observed_fpr),
        _rate(f.designed_fpr),
        f"{f.blocks_skipped:,}",
        format_size(f.bytes_skipped),
        format_size(f.memory_bytes),
    ]


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3%}"
