"""The names of workloads, the benchmark list and the suites."""

from __future__ import annotations

import pytest

from lsmkv_bench.report.targets import TARGETS
from lsmkv_bench.settings import Settings
from lsmkv_bench.workloads.benchmark_list import parse_step, parse_steps
from lsmkv_bench.workloads.registry import WORKLOADS, find
from lsmkv_bench.workloads.suites import SUITES

NAMES = """fillseq fillrandom filluniquerandom fillsync fillbatch fill100K overwrite updaterandom deleteseq
deleterandom readseq readreverse readrandom readmissing readhot multireadrandom seekrandom newiterator
readwhilewriting seekrandomwhilewriting readrandomwriterandom mixgraph compact flush open stats levelstats
sstables filterstats ycsba ycsbb ycsbc ycsbd ycsbe ycsbf bloomadd bloomprobe xxh3 lz4comp lz4decomp
cacheset cacheget cachemix cacheincr cachememo queue"""
SINGLE_THREADED = """fillbatch deleteseq readseq readreverse multireadrandom newiterator compact flush open settle
stats levelstats sstables filterstats bloomadd bloomprobe xxh3 lz4comp lz4decomp
cacheset cacheget cachemix cacheincr cachememo queue"""


@pytest.mark.parametrize("name", NAMES.split())
def test_every_workload_exists(name: str) -> None:
    assert find(parse_step(name).name) is WORKLOADS[name.lower()]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_single_threaded_workloads_are_marked(name: str) -> None:
    assert WORKLOADS[name].threads == (name not in SINGLE_THREADED.split())


def test_unknown_workload_suggests_the_closest_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'readrandom'"):
        find("readrandum")


def test_benchmark_syntax() -> None:
    step = parse_step("readrandom[X3-W1]:threads=2:title=two threads")
    assert (step.name, step.repeat, step.warmup, step.label) == ("readrandom", 3, 1, "two threads")
    assert step.flags == {"threads": "2"}
    assert parse_step("fill100K[W2]").warmup == 2
    assert [s.label for s in parse_steps("a, b:num=3")] == ["a", "b:num=3"]


@pytest.mark.parametrize("text", ["", " , ", "a[3]", "a[X0]", "a[Xq]", "a:b", "a b", "[X3]"])
def test_bad_benchmark_syntax_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_steps(text)


@pytest.mark.parametrize("suite", SUITES)
def test_suites_parse(suite: str) -> None:
    for step in parse_steps(SUITES[suite]):
        assert find(step.name)
        Settings().with_flags(step.flags)


def test_every_target_is_a_row_of_a_suite() -> None:
    labels = {step.label for text in SUITES.values() for step in parse_steps(text)}
    assert set(TARGETS) <= labels
