"""The flags of the settings. A flag reads the same for the whole run and for a single benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .units import parse_bool, parse_count, parse_size

ALIASES = {"bloom_bits": "bits_per_key", "value_size_distribution_type": "value_size_distribution"}


def _number_or_auto(text: str) -> float | str:
    return "auto" if text == "auto" else float(text)


def _bool_or_auto(text: str) -> bool | str:
    return "auto" if text == "auto" else parse_bool(text)


# Flag, type of its value, help. A "switch" is --flag or --flag=0/1.
FLAGS: tuple[tuple[str, str, str], ...] = (
    ("num", "count", "records in the database"),
    ("reads", "count", "operations of a read workload (default: num)"),
    ("writes", "count", "operations of a write workload (default: num)"),
    ("duration", "float", "seconds per workload, instead of a count"),
    ("threads", "count", "threads; in *whilewriting the readers"),
    ("key-size", "size", "bytes per key"),
    ("value-size", "size", "bytes per value"),
    ("value-size-distribution", "text", "fixed, uniform, normal or pareto"),
    ("value-size-min", "size", "of uniform and normal sizes"),
    ("value-size-max", "size", "of uniform and normal sizes"),
    ("compression-ratio", "float", "compressed size of a value / its size"),
    ("values", "text", "text, or json: records of 200 bytes with the same fields"),
    ("compression", "text", "lz4, zstd or none"),
    ("large-value-threshold", "size", "from this size on values go to value logs (lsmkv) or blob files (rocksdb-blob)"),
    ("batch-size", "count", "records per call: fillbatch (1000), multireadrandom (100)"),
    ("seek-nexts", "count", "nexts after each seek"),
    ("cache-size", "size", "size of the block cache"),
    ("bits-per-key", "bits", "size of the filters; also --bloom-bits"),
    ("optimize-filters-for-hits", "auto", "no filters at the bottom level"),
    ("block-size", "size", "uncompressed size of a block"),
    ("write-buffer-size", "size", "size of a memtable"),
    ("max-write-buffers", "count", "maximum number of memtables"),
    ("memory-budget", "size", "memory for two write buffers and the block cache"),
    ("memory", "size", "lsmkv's option memory; peers get the sizes into which it is split"),
    ("sync", "switch", "sync every write"),
    ("final-sync", "switch", "sync once after the writes, as part of the measured time"),
    ("disable-wal", "switch", "write no log"),
    ("keyspace", "text", "run in this named keyspace of lsmkv; peers have no such setting"),
    ("seed", "count", "seed of all keys and values"),
    ("distribution", "text", "of keys: uniform, zipf:0.99 or latest"),
    ("rate", "count", "writes per second in *whilewriting; 0: no limit"),
    ("readwritepercent", "count", "percentage of reads in readrandomwriterandom"),
    ("histogram", "switch", "print the latency histogram of each workload"),
    ("latency", "switch", "record latencies; their cost is subtracted"),
    ("settle", "switch", "wait for background work after write workloads"),
    ("check-every", "count", "verify every n-th answer; 0: none"),
    ("report-interval-seconds", "float", "time between progress reports"),
)

PARSERS: dict[str, Callable[[str], Any]] = {
    "count": parse_count,
    "size": parse_size,
    "float": float,
    "text": str,
    "bits": _number_or_auto,
    "auto": _bool_or_auto,
    "switch": parse_bool,
}


def parse_flag(name: str, text: str) -> Any:
    """Parse the value of a flag, given by the name of its field."""
    value_types = {flag.replace("-", "_"): value_type for flag, value_type, _ in FLAGS}
    return PARSERS[value_types[name]](text)
