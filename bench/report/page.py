"""The Markdown page of a run."""

from __future__ import annotations

from ..settings import Settings
from ..units import format_size
from .results import Results
from .tables import figure_table, ratio_table, settings_table
from .text import markdown


def markdown_page(results: Results) -> str:
    m, s = results.machine, results.settings
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    facts = [
        f"- command: `{results.command}`",
        f"- machine: {m['cpu']}, {m['cores']} cores, {format_size(m['memory'])}, {m['system']}, {m['filesystem']}",
        f"- versions: Python {m['python']}, {versions}; commit {m['commit'] or 'unknown'}",
        f"- {s.num:,} keys of {s.key_size} bytes, values of {describe_values(s)},"
        f" seed {s.seed}, {_describe_runs(s)}; load average at the start {m['load']:.1f}",
    ]
    return "\n\n".join(
        [
            f"# Benchmark, {m['date'][:10]}",
            "\n".join(facts),
            "## Ratios",
            "A peer's time per operation divided by ours, and its range over the runs. Above 1 we are faster.",
            markdown(*ratio_table(results)),
            "## Ratios of CPU time",
            "The same for the CPU time of the calling thread, without waits and preemption.",
            markdown(*ratio_table(results, "cpu")),
            "## All figures",
            "Latencies are in microseconds per call. RSS is the peak of the process during the workload. Write"
            " amplification is cumulative since the database was created.",
            markdown(*figure_table(results)),
            "## The same budget for all",
            markdown(*settings_table(results)) + "\n",
        ]
    )


def _describe_runs(s: Settings) -> str:
    return "a single run" if s.runs == 1 else f"{s.runs} interleaved runs, medians"


def describe_values(s: Settings) -> str:
    kind = s.value_size_distribution
    size = {
        "fixed": f"{s.value_size} bytes",
        "uniform": f"{s.value_size_min} to {s.value_size_max} bytes",
        "normal": f"{s.value_size_min} to {s.value_size_max} bytes, mostly in the middle",
    }.get(kind, f"{kind} sizes")
    if s.values == "json":
        return f"JSON records, {size}"
    share = "half compressible" if s.compression_ratio == 0.5 else f"compressible to {s.compression_ratio:.0%}"
    return f"{size} ({share})"
