"""The workloads by db_bench's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from ..settings import Settings
from . import cache, maintenance, micro, queue, read, write
from .loop import Run
from .mixed import YCSB, mixed, read_random_write_random
from .operations import DELETE, GET, PUT, SCAN, UPDATE
from .threads import while_writing

LARGE_VALUE = 1024  # the threshold of the big* workloads


@dataclass(frozen=True)
class Workload:
    run: Run
    help: str
    fresh: bool = False  # starts with an empty database
    writes: bool = False  # leaves background work, so the runner waits after it
    prepare: Callable[[Settings], Settings] | None = None  # settings that the name implies, such as sync
    ordered: bool = False  # needs an engine with ordered keys
    threads: bool = False  # can run in several threads

    def settings(self, cfg: Settings) -> Settings:
        return self.prepare(cfg) if self.prepare else cfg


def _synced(cfg: Settings) -> Settings:
    return replace(cfg, sync=True)


def _large(cfg: Settings) -> Settings:
    return replace(cfg, value_size=100_000, value_size_distribution="fixed")


def _separate(cfg: Settings) -> Settings:
    """Large values, apart from the tree in engines that can."""
    size = cfg.value_size if cfg.value_size >= LARGE_VALUE else 16 * LARGE_VALUE
    return replace(cfg, value_size=size, large_value_threshold=cfg.large_value_threshold or LARGE_VALUE)


def _pareto(cfg: Settings) -> Settings:
    return replace(cfg, value_size_distribution="pareto")


WORKLOADS: dict[str, Workload] = {
    "fillseq": Workload(write.fill("sequential"), "writes in key order", True, True, threads=True),
    "fillrandom": Workload(
        write.fill("uniform"), "writes in random order, with repeated keys", True, True, threads=True
    ),
    "filluniquerandom": Workload(
        write.fill("unique"), "writes each key once, in random order", True, True, threads=True
    ),
    "fillsync": Workload(
        write.fill("uniform", 0.001), "num/1000 writes, each synced", True, True, _synced, threads=True
    ),
    "fill100k": Workload(
        write.fill("uniform", 0.001), "num/1000 writes of 100 kB values", True, True, _large, threads=True
    ),
    "fillbatch": Workload(write.fill_batch, "random writes in batches of batch_size (1000)", True, True),
    "overwrite": Workload(write.change(PUT), "random writes to an existing database", writes=True, threads=True),
    "updaterandom": Workload(write.change(UPDATE), "random read-modify-writes", writes=True, threads=True),
    "deleteseq": Workload(write.delete_sequential, "deletes in key order", writes=True),
    "deleterandom": Workload(write.change(DELETE), "deletes in random order", writes=True, threads=True),
    "readseq": Workload(read.iterate(reverse=False), "iterates over all records", ordered=True),
    "readreverse": Workload(read.iterate(reverse=True), "iterates backwards", ordered=True),
    "readrandom": Workload(read.get("read"), "random reads", threads=True),
    "readmissing": Workload(read.get("miss", suffix=b"."), "reads of absent keys between existing ones", threads=True),
    "readhot": Workload(read.get("hot", share=0.01), "random reads in 1 % of the key space", threads=True),
    "multireadrandom": Workload(read.multi_get, "random reads, batch_size (100) keys per call"),
    "seekrandom": Workload(read.seek, "random seeks, each followed by seek_nexts nexts", ordered=True, threads=True),
    "newiterator": Workload(read.new_iterator, "creates iterators", ordered=True),
    "readwhilewriting": Workload(while_writing(GET), "random reads while one thread writes", writes=True, threads=True),
    "seekrandomwhilewriting": Workload(
        while_writing(SCAN), "random seeks while one thread writes", writes=True, ordered=True, threads=True
    ),
    "readrandomwriterandom": Workload(
        read_random_write_random, "readwritepercent reads, the rest writes", writes=True, threads=True
    ),
    "mixgraph": Workload(
        mixed("graph", {"get": 83, "put": 14, "scan": 3}, "power", ("pareto", 0.0, 2.517, 14.236, 10000)),
        "83 % get, 14 % put, 3 % scan; power-law keys, Pareto values and scan lengths",
        writes=True,
        prepare=_pareto,
        ordered=True,
        threads=True,
    ),
    "bigfill": Workload(
        write.fill("unique"), "writes each key once, large values in random order", True, True, _separate, threads=True
    ),
    "bigoverwrite": Workload(
        write.change(PUT), "random writes of large values", writes=True, prepare=_separate, threads=True
    ),
    "bigread": Workload(read.get("read"), "random reads of large values", prepare=_separate, threads=True),
    "compact": Workload(maintenance.timed("compact"), "compacts the whole key range", writes=True),
    "flush": Workload(maintenance.timed("flush"), "flushes the memtable", writes=True),
    "open": Workload(maintenance.reopen, "reopens the database and reads one record"),
    "settle": Workload(maintenance.settle, "waits until background work is done"),
    "stats": Workload(maintenance.print_stats("stats"), "prints the engine's statistics"),
    "levelstats": Workload(maintenance.print_stats("levelstats"), "prints files and bytes per level"),
    "sstables": Workload(maintenance.print_stats("sstables"), "prints the tables"),
    "filterstats": Workload(maintenance.print_stats("filterstats"), "prints what the filters saved"),
    **{
        name: Workload(
            mixed(name, weights, kind),
            f"YCSB {name[-1].upper()}: " + ", ".join(f"{w:g} % {op}" for op, w in weights.items()) + f", {kind}",
            writes=set(weights) != {"get"},
            ordered="scan" in weights,
            threads=True,
        )
        for name, (weights, kind) in YCSB.items()
    },
    "cacheset": Workload(cache.sets, "sets in a cache"),
    "cacheget": Workload(cache.gets, "gets from a cache, all of them hits"),
    "cachemix": Workload(cache.mix, "90 % get, 10 % set, zipf, in a cache for a quarter of the records"),
    "cacheincr": Workload(cache.increments, "increments of a counter in a cache"),
    "cachememo": Workload(cache.memoized, "calls of a memoized function that hit"),
    "bloomadd": Workload(micro.bloom_add, "adds keys to a standalone filter"),
    "bloomprobe": Workload(micro.bloom_probe, "probes a standalone filter with absent keys"),
    "xxh3": Workload(micro.xxh3, "hashes blocks of block_size with XXH3-64"),
    "lz4comp": Workload(micro.lz4_compress, "compresses blocks with LZ4"),
    "lz4decomp": Workload(micro.lz4_decompress, "decompresses blocks with LZ4"),
    "queue": Workload(
        queue.push_and_pop, "appends a record and removes the first one", fresh=True, writes=True, ordered=True
    ),
}


def find(name: str) -> Workload:
    if name not in WORKLOADS:
        close = get_close_matches(name, WORKLOADS, n=1)
        raise ValueError(f"unknown benchmark {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return WORKLOADS[name]
