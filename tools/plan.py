"""`plan`: what filters for a database that does not exist yet would cost and save."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare
from lsmkv_tool.exits import Usage
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Human, Output, num

LEVELS = [
    num("level", "level", lambda level: f"L{level}"),
    num("keys", "entries", units.count),
    num("runs", "runs"),
    num("bits/key", "bits_per_key", lambda bits: f"{bits:.2f}"),
    num("k", "k"),
    num("FPR", "fpr", lambda x: units.percent(x, 3)),
    num("memory", "memory_bytes", units.size),
    num("probes for nothing", "probes_in_vain", lambda x: f"{x:.3f}"),
]


def summary(found: dict[str, Any], read_cost_ns: int, data_bytes: int) -> list[tuple[str, str]]:
    given_back = found["memory_given_back"]
    lines = [
        ("keys", f"{units.count(found['n_keys'])}, about {units.size(data_bytes)} raw"),
        (
            "filter memory",
            f"{units.size(found['memory_bytes'])}, {found['average_bits_per_key']:.2f} bits per key",
        ),
        ("wasted reads", f"{found['summed_fpr']:.4f} per lookup of an absent key"),
        ("", f"{found['reads_in_vain_per_lookup']:.4f} per lookup of the given mix"),
        ("reads avoided", f"{found['reads_avoided_per_lookup']:.3f} per lookup"),
        ("time lost", f"{units.duration(found['reads_in_vain_per_lookup'] * read_cost_ns)} per lookup"),
    ]
    if found["reads_per_second"] is not None:
        lines.append(("per second", f"{units.count(found['reads_in_vain_per_second'])} wasted reads, "
                                    f"{units.count(found['reads_avoided_per_second'])} avoided"))  # fmt: skip
    lines.append(
        ("optimize for hits", f"would give back {units.size(given_back)}: the bottom level's filters")
    )
    return lines


@declare(
    example=(
        "lsmkv-tool plan --keys 100M --value-size 100 --absent 0.5 --qps 20k",
        "lsmkv-tool plan --keys 1G --memory 1GiB",
        "lsmkv-tool plan --keys 50M --latency 20us --read-cost 100us",
    )
)
@click.option("--keys", "n_keys", type=params.COUNT, required=True, help="How many, e.g. 50M.")
@click.option("--key-size", type=params.SIZE, default="16", show_default=True, help="Mean bytes of a key.")
@click.option(
    "--value-size", type=params.SIZE, default="100", show_default=True, help="Mean bytes of a value."
)
@click.option("--ratio", type=click.FloatRange(1.5, 100), default=10.0, show_default=True,
              help="How many times larger each level is than the one above.")  # fmt: skip
@click.option(
    "--levels", type=click.IntRange(1, 6), help="Levels below L0; by default what the size asks for."
)
@click.option(
    "--l0", "l0_runs", type=click.IntRange(0, 64), default=4, show_default=True, help="Tables in L0."
)
@click.option(
    "--write-buffer", type=params.SIZE, default="64M", show_default=True, help="Bytes per L0 table."
)
@click.option("--absent", type=click.FloatRange(0, 1), default=1.0, show_default=True,
              help="Share of lookups for keys that are not there.")  # fmt: skip
@click.option("--qps", type=params.COUNT, help="Lookups per second.")
@click.option(
    "--read-cost", type=params.TIME, default="100us", show_default=True, help="Time of one table read."
)
@click.option("--bits", type=params.BITS, default="auto", show_default=True,
              help="Bits per key: a number, a list from L0 on (12,10,8), or auto.")  # fmt: skip
@click.option("--memory", type=params.SIZE, help="Instead of --bits: the filters' memory, split as is best.")
@click.option("--target-fpr", type=click.FloatRange(0, 1, min_open=True),
              help="Instead of --bits: wasted reads per lookup, for the least memory.")  # fmt: skip
@click.option(
    "--latency", type=params.TIME, help="Instead of --bits: mean time a lookup may lose to wasted reads."
)
@click.option("--optimize-for-hits", is_flag=True, help="No filter on the bottom level.")
def plan(out: Output, n_keys: int, key_size: int, value_size: int, ratio: float, levels: int | None,
         l0_runs: int, write_buffer: int, absent: float, qps: int | None, read_cost: int, bits: Any,
         memory: int | None, target_fpr: float | None, latency: int | None,
         optimize_for_hits: bool) -> None:  # fmt: skip
    """Plan capacity from numbers alone: memory per level, false positive rates, reads avoided.

    `probes for nothing` is how many filters of a level a lookup asks for a key that is not in their table; times
    the FPR these become reads. By default an average of 10 bits per key is split over the levels as is best.
    """
    import lsmkv

    entry = key_size + value_size
    if entry < 1 or write_buffer < entry:
        raise Usage("an entry has at least one byte, and the write buffer holds at least one entry")
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
            n_keys, bits_per_key=bits, filter_memory=memory, target_fpr=target_fpr,
            latency_budget_us=None if latency is None else latency / 1000,
            optimize_filters_for_hits=optimize_for_hits, **common,
        ).to_dict()  # fmt: skip
        even = lsmkv.plan(n_keys, bits_per_key=found["average_bits_per_key"], **common).to_dict()
    except ValueError as error:
        raise Usage(str(error)) from error
    found |= {
        "reads_per_second": qps,
        "read_cost_us": read_cost / 1000,
        "raw_bytes": n_keys * entry,
        "same_memory_uniform": {
            "bits_per_key": found["average_bits_per_key"],
            "summed_fpr": even["summed_fpr"],
            "reads_in_vain_per_lookup": even["reads_in_vain_per_lookup"],
        },
    }

    def show(human: Human) -> None:
        human.table(LEVELS, found["levels"])
        human.line()
        human.fields(summary(found, read_cost, n_keys * entry))
        human.fields(
            [("same memory, even", f"{even['reads_in_vain_per_lookup']:.4f} wasted reads per lookup")]
        )

    out.result(found, show)
