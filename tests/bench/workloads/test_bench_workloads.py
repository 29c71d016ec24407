"""Every workload on every installed engine, in real processes at a small size."""

from __future__ import annotations

from typing import Any

import pytest
from benchrunner import DATABASES, ENGINES, INSTALLED, run_cli

from lsmkv_bench.workloads.registry import WORKLOADS

OTHERS = ",".join(
    name
    for name in WORKLOADS
    if not name.startswith(("fill", "bloom", "stats", "levelstats", "sstables", "filterstats", "settle"))
)
SMALL = ["--num=2000", "--reads=1000", "--writes=500", "--settle=0", "--check-every=1"]
FILLS = "fillseq,fillbatch:batch_size=100,fillsync:writes=20,fillsync:threads=4:writes=5"
FILLS += ",fill100k:writes=3,fillrandom"


@pytest.mark.parametrize("engine", ENGINES)
def test_every_workload_runs_and_is_verified(bench: Any, engine: str) -> None:
    text = f"{FILLS},filluniquerandom:writes=2000,{OTHERS},readseq:title=again"
    data = bench(*SMALL, f"--engines={engine}", f"--benchmarks={text}")
    done = {result["workload"] for result in data["results"]}
    skipped = {skip["workload"] for skip in data["skipped"]}
    assert len(done | skipped) == len(text.split(","))
    caches = {name for name in WORKLOADS if name.startswith("cache")}
    assert (caches <= done) if engine in ("lsmkv", "diskcache") else (caches <= skipped)
    assert skipped - caches <= {
        "readseq",
        "again",
        "readreverse",
        "seekrandom",
        "newiterator",
        "seekrandomwhilewriting",
        "mixgraph",
        "ycsbe",
        "compact",
        "flush",
        "queue",
    }
    for result in data["results"]:
        assert result["ops"] > 0 and result["seconds"] > 0, result["workload"]
    assert data["results"][-1]["checked"] > 5000


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_and_duration(bench: Any, engine: str) -> None:
    steps = (
        "filluniquerandom:writes=2000,readrandom:threads=3,overwrite:threads=2,readwhilewriting:rate=2000,"
        "updaterandom:threads=2,readrandom:duration=0.05:title=timed,readrandom:title=after"
    )
    data = bench(*SMALL, f"--engines={engine}", f"--benchmarks={steps}")
    ops = {result["workload"]: result["ops"] for result in data["results"]}
    assert ops["readrandom:threads=3"] == 3000
    assert ops["overwrite:threads=2"] == 1000
    assert ops["timed"] > 0
    found = {result["workload"]: result["found"] for result in data["results"]}
    assert found["after"] == 1000


THREADED = "ycsba,ycsbb,ycsbc,ycsbd,ycsbe,ycsbf,mixgraph,readrandomwriterandom,seekrandom,seekrandomwhilewriting"


@pytest.mark.parametrize("engine", DATABASES)
def test_mixes_and_seeks_run_in_threads(bench: Any, engine: str) -> None:
    data = bench(
        *("--num=2000", "--reads=300", "--settle=0", "--check-every=1", "--threads=3", "--seek_nexts=5"),
        *(f"--engines={engine}", f"--benchmarks=fillseq,{THREADED},readseq,readrandom"),
    )
    results = {result["workload"]: result for result in data["results"]}
    for name in THREADED.split(","):
        assert (results[name]["threads"], results[name]["ops"]) == (3, 900), name
    assert results["readseq"]["threads"] == 1
    assert results["readrandom"]["found"] == 900


def test_single_threaded_workload_prints_a_note() -> None:
    words = ["--num=500", "--engines=dict", "--benchmarks=fillbatch,readrandom", "--threads=2", "--settle=0"]
    done = run_cli(*words)
    assert done.stdout.count("runs in one thread") == 1
    assert "fillbatch    : runs in one thread" in done.stdout


def test_readhot_in_threads_stays_in_one_percent_of_the_keys(bench: Any) -> None:
    steps = "fillseq:writes=20:threads=1,readhot:threads=2"  # only 1 % of the 2000 keys exist
    data = bench("--num=2000", "--reads=200", "--engines=lsmkv", "--settle=0", f"--benchmarks={steps}")
    assert data["results"][-1]["found"] == data["results"][-1]["ops"] == 400


def test_threads_run_more_operations_than_were_prepared(bench: Any) -> None:
    data = bench("--num=1000", "--reads=270001", "--engines=dict", "--benchmarks=fillseq,readrandom:threads=2")
    assert data["results"][-1]["ops"] == 2 * 270001


@pytest.mark.parametrize("step", ["fillbatch", "multireadrandom", "newiterator", "xxh3", "ycsba", "ycsba:threads=2"])
def test_duration_limits_every_loop(bench: Any, step: str) -> None:
    data = bench("--num=500", "--reads=10", "--engines=lsmkv", "--settle=0", "--duration=0.3", f"--benchmarks={step}")
    assert 0.25 < data["results"][0]["wall_seconds"] < 20
    assert data["results"][0]["ops"] > 1000


@pytest.mark.parametrize("engine", INSTALLED)
def test_statistics_and_micro_benchmarks(bench: Any, engine: str) -> None:
    """Each has a result, or is skipped because the engine does not have it."""
    names = ["stats", "levelstats", "sstables", "filterstats", "settle", "bloomadd", "bloomprobe", "xxh3"]
    names += ["lz4comp", "lz4decomp"]
    fill = {"rbloom": [], "dict": ["fillseq"], "diskcache": ["fillseq"]}.get(engine, ["fillseq", "flush"])
    data = bench("--num=2000", "--reads=1000", f"--engines={engine}", f"--benchmarks={','.join(fill + names)}")
    results = {result["workload"]: result for result in data["results"]}
    skipped = {skip["workload"] for skip in data["skipped"]}
    assert set(results) | skipped == {*fill, *names} and not set(results) & skipped
    supported = {
        "lsmkv": {"stats", "levelstats", "sstables", "filterstats", "bloomadd", "bloomprobe"},
        "rocksdb": {"stats", "levelstats", "sstables"},
        "rocksdb-blob": {"stats", "levelstats", "sstables"},
        "leveldb": {"stats", "sstables"},
        "lmdb": {"stats"},
        "dict": set(),
        "diskcache": set(),
        "rbloom": {"bloomadd", "bloomprobe"},
    }[engine]
    assert set(results) == {*supported, *fill, "settle", "xxh3", "lz4comp", "lz4decomp"}
    assert all(results[name]["lines"] for name in supported if not name.startswith("bloom"))
    if "bloomprobe" in supported:
        assert 0 <= results["bloomprobe"]["detail"]["false_positive_rate"] < 0.03


def test_a_cache_keeps_what_is_read_within_its_size(bench: Any) -> None:
    """With room for a quarter of the records, more than a quarter of the gets hit. The database stays as it is."""
    steps = "fillseq,cachemix:reads=20000,cacheget,readrandom"
    data = bench("--num=2000", "--reads=1000", "--engines=lsmkv", "--settle=0", f"--benchmarks={steps}")
    _, mix, get, read = data["results"]
    assert mix["detail"]["size_limit"] == 2000 * 116 // 4
    assert 0.25 < mix["detail"]["hit_ratio"] < 1
    assert "hit ratio" in mix["lines"][0]
    assert get["found"] == read["found"] == 1000


def test_same_seed_gives_the_same_answers_for_all_engines(bench: Any) -> None:
    steps = "fillrandom,overwrite:writes=300,readrandom,readhot,deleterandom:writes=300,readrandom:title=last"
    data = bench("--num=3000", "--settle=0", f"--engines={','.join(ENGINES)}", f"--benchmarks={steps}")
    found: dict[str, set[int]] = {}
    for result in data["results"]:
        if result["found"] is not None:
            found.setdefault(result["workload"], set()).add(result["found"])
    assert set(found) == {"readrandom", "readhot", "last"}
    assert all(len(counts) == 1 for counts in found.values()), found
