"""`plan`: filter memory and false positive rates of a database that does not exist yet."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare
from lsmkv_tool.exits import Usage
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import LEVEL, Column, fixed, num, percent
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer

COLUMNS = [
    LEVEL,
    num("keys", "entries", units.count),
    num("runs", "runs", rank=2),
    Column("filter", "filter"),
    fixed("bits/key", "bits_per_key", 2),
    num("k", "k", rank=1),
    percent("FPR", "fpr", 3),
    num("memory", "memory_bytes", units.size),
    fixed("wasted probes", "wasted_probes", 3),
]


def summary(found: dict[str, Any], read_cost_ns: int) -> list[tuple[str, str]]:
    wasted = found["wasted_reads_per_lookup"]
    memory = f"{units.size(found['memory_bytes'])}, {found['average_bits_per_key']:.2f} bits per key"
    lines = [
        ("keys", f"{units.count(found['n_keys'])}, about {units.size(found['raw_bytes'])} raw"),
        ("filter memory", memory),
        ("wasted reads", f"{found['summed_fpr']:.4f} per lookup of an absent key"),
        ("", f"{wasted:.4f} per lookup"),
        ("avoided reads", f"{found['reads_avoided_per_lookup']:.3f} per lookup"),
        ("wasted time", f"{units.duration(wasted * read_cost_ns)} per lookup"),
    ]
    if found["reads_per_second"] is not None:
        rate = found["wasted_reads_per_second"], found["reads_avoided_per_second"]
        lines.append(("per second", f"{units.count(rate[0])} wasted reads, {units.count(rate[1])} avoided"))
    saved = units.size(found["memory_given_back"])
    lines.append(("optimize for hits", f"would save {saved}, the filters of the bottom level"))
    uniform = found["same_memory_uniform"]["wasted_reads_per_lookup"]
    lines.append(("uniform bits", f"{uniform:.4f} wasted reads per lookup with the same memory"))
    return lines


@declare(
    "plan",
    example=(
        "lsmkv-tool plan --keys 100M --value-size 100 --absent 0.5 --qps 20k",
        "lsmkv-tool plan --keys 1G --memory 1GiB",
        "lsmkv-tool plan --keys 50M --latency 20us --read-cost 100us",
    ),
    table=True,
)
@click.option("--keys", "n_keys", type=params.COUNT, required=True, help="Number of keys, such as 50M.")
@click.option("--key-size", type=params.SIZE, default="16", show_default=True, help="Mean size of a key.")
@click.option("--value-size", type=params.SIZE, default="100", show_default=True, help="Mean size of a value.")
@click.option(
    "--ratio", type=params.FloatRange(1.5, 100), default=10.0, show_default=True, help="Size ratio between levels."
)
@click.option("--levels", type=click.IntRange(1, 6), help="Levels below L0; by default as the size requires.")
@click.option("--l0", "l0_runs", type=click.IntRange(0, 64), default=4, show_default=True, help="Tables in L0.")
@click.option("--write-buffer", type=params.SIZE, default="64M", show_default=True, help="Size of an L0 table.")
@click.option(
    "--absent",
    type=params.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="Share of lookups for absent keys.",
)
@click.option("--qps", type=params.COUNT, help="Lookups per second.")
@click.option("--read-cost", type=params.TIME, default="100us", show_default=True, help="Time of one table read.")
@click.option(
    "--bits",
    type=params.BITS,
    default="auto",
    show_default=True,
    help="Bits per key: a number, a list from L0 on (12,10,8), or auto.",
)
@click.option("--memory", type=params.SIZE, help="Instead of --bits: total filter memory, split optimally.")
@click.option(
    "--target-fpr",
    type=params.FloatRange(0, 1, min_open=True),
    help="Instead of --bits: wasted reads per lookup, reached with the least memory.",
)
@click.option("--latency", type=params.TIME, help="Instead of --bits: mean time per lookup spent on wasted reads.")
@click.option(
    "--filter",
    "kind",
    type=click.Choice(["bloom", "fuse", "auto"]),
    default="bloom",
    show_default=True,
    help="Kind of filter, as the option `filter`.",
)
@click.option("--optimize-for-hits", is_flag=True, help="No filters on the bottom level.")
def plan(
    out: Output,
    n_keys: int,
    key_size: int,
    value_size: int,
    ratio: float,
    levels: int | None,
    l0_runs: int,
    write_buffer: int,
    absent: float,
    qps: int | None,
    read_cost: int,
    bits: Any,
    memory: int | None,
    target_fpr: float | None,
    latency: int | None,
    kind: str,
    optimize_for_hits: bool,
) -> None:
    """Plan filters from numbers alone: memory per level, false positive rates, avoided reads.

    `wasted probes` counts the tables of a level per lookup that are probed but do not hold the key. Multiplied
    by the FPR it gives wasted reads. The default is 10 bits per key on average, split optimally over the levels.
    """
    import lsmkv

    entry = key_size + value_size
    if entry < 1 or write_buffer < entry:
        raise Usage("an entry must have at least one byte and fit into the write buffer")
    common: dict[str, Any] = {
        "read_cost_us": read_cost / 1000,
        "absent": absent,
        "reads_per_second": qps,
        "size_ratio": ratio,
        "depth": levels,
        "l0_runs": l0_runs,
        "run_entries": write_buffer // entry,
    }
    try:
        found = lsmkv.plan(
            n_keys,
            bits_per_key=bits,
            filter_memory=memory,
            target_fpr=target_fpr,
            latency_budget_us=None if latency is None else latency / 1000,
            filter=kind,
            optimize_filters_for_hits=optimize_for_hits,
            **common,
        ).to_dict()
        uniform = lsmkv.plan(n_keys, bits_per_key=found["average_bits_per_key"], **common).to_dict()
    except ValueError as error:
        raise Usage(str(error)) from error
    found |= {
        "reads_per_second": qps,
        "read_cost_us": read_cost / 1000,
        "raw_bytes": n_keys * entry,
        "same_memory_uniform": {
            "bits_per_key": found["average_bits_per_key"],
            "summed_fpr": uniform["summed_fpr"],
            "wasted_reads_per_lookup": uniform["wasted_reads_per_lookup"],
        },
    }

    def show(printer: Printer) -> None:
        printer.table(COLUMNS, found["levels"])
        printer.line()
        printer.fields(summary(found, read_cost))

    out.result(found, show)
