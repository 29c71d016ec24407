"""The command itself, in real processes with real engines, at a small size."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchrunner import installed_engines, run_cli

from lsmkv_bench.workloads.registry import WORKLOADS

EVERYTHING = ",".join(
    name
    for name in WORKLOADS
    if not name.startswith(("fill", "bloom", "stats", "levelstats", "sstables", "filterstats", "settle"))
)
SMALL = ["--num=2000", "--reads=1000", "--writes=500", "--settle=0", "--check-every=1"]
FILLS = "fillseq,fillbatch:batch_size=100,fillsync:writes=20,fillsync:threads=4:writes=5"
FILLS += ",fill100k:writes=3,fillrandom"


@pytest.mark.parametrize("engine", installed_engines())
def test_every_workload_runs_and_is_checked(bench: Any, engine: str) -> None:
    text = f"{FILLS},filluniquerandom:writes=2000,{EVERYTHING},readseq:title=again"
    data = bench(*SMALL, f"--engines={engine}", f"--benchmarks={text}")
    done = {result["workload"] for result in data["results"]}
    skipped = {skip["workload"] for skip in data["skipped"]}
    assert len(done | skipped) == len(text.split(","))
    assert skipped <= {
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
    }
    for result in data["results"]:
        assert result["ops"] > 0 and result["seconds"] > 0, result["workload"]
    assert data["results"][-1]["checked"] > 5000


@pytest.mark.parametrize("engine", installed_engines())
def test_threads_and_duration(bench: Any, engine: str) -> None:
    steps = (
        "filluniquerandom,readrandom:threads=3,overwrite:threads=2,readwhilewriting:rate=2000,"
        "updaterandom:threads=2,readrandom:duration=0.05:title=timed,readrandom:title=after"
    )
    data = bench(
        *SMALL, f"--engines={engine}", f"--benchmarks={steps.replace('random,', 'random:writes=2000,', 1)}"
    )
    ops = {result["workload"]: result["ops"] for result in data["results"]}
    assert ops["readrandom:threads=3"] == 3000
    assert ops["overwrite:threads=2"] == 1000
    assert ops["timed"] > 0
    found = {result["workload"]: result["found"] for result in data["results"]}
    assert found["after"] == 1000


THREADED = "ycsba,ycsbb,ycsbc,ycsbd,ycsbe,ycsbf,mixgraph,readrandomwriterandom,seekrandom,seekrandomwhilewriting"


@pytest.mark.parametrize("engine", [name for name in installed_engines() if name != "dict"])
def test_mixes_and_seeks_run_in_threads(bench: Any, engine: str) -> None:
    """They ran in one, and the result said how many had been asked for."""
    data = bench(
        *("--num=2000", "--reads=300", "--settle=0", "--check-every=1", "--threads=3", "--seek_nexts=5"),
        *(f"--engines={engine}", f"--benchmarks=fillseq,{THREADED},readseq,readrandom"),
    )
    results = {result["workload"]: result for result in data["results"]}
    for name in THREADED.split(","):
        assert (results[name]["threads"], results[name]["ops"]) == (3, 900), name
    assert results["readseq"]["threads"] == 1
    assert results["readrandom"]["found"] == 900


def test_a_workload_of_one_thread_says_so() -> None:
    done = run_cli("--num=500", "--engines=dict", "--benchmarks=fillbatch,readrandom", "--threads=2", "--settle=0")
    assert done.stdout.count("runs in one thread") == 1
    assert "fillbatch    : runs in one thread" in done.stdout


def test_hot_reads_of_threads_went_over_all_keys(bench: Any) -> None:
    steps = "fillseq:writes=20:threads=1,readhot:threads=2"  # 1 % of 2000 keys: all of them are there
    data = bench("--num=2000", "--reads=200", "--engines=lsmkv", "--settle=0", f"--benchmarks={steps}")
    assert data["results"][-1]["found"] == data["results"][-1]["ops"] == 400


def test_threads_do_as_many_operations_as_asked(bench: Any) -> None:
    """Also where they go through what was prepared more than once: 262144 are."""
    data = bench("--num=1000", "--reads=270001", "--engines=dict", "--benchmarks=fillseq,readrandom:threads=2")
    assert data["results"][-1]["ops"] == 2 * 270001


@pytest.mark.parametrize("step", ["fillbatch", "multireadrandom", "newiterator", "xxh3", "ycsba", "ycsba:threads=2"])
def test_a_duration_holds_for_every_loop(bench: Any, step: str) -> None:
    data = bench("--num=500", "--reads=10", "--engines=lsmkv", "--settle=0", "--duration=0.3", f"--benchmarks={step}")
    assert 0.25 < data["results"][0]["wall_seconds"] < 20
    assert data["results"][0]["ops"] > 1000


@pytest.mark.parametrize("engine", [*installed_engines(), *(["rbloom"] if find_spec("rbloom") else [])])
def test_what_prints_and_the_kernels_run(bench: Any, engine: str) -> None:
    """Each gives a result, or says what the engine does not have."""
    names = ["stats", "levelstats", "sstables", "filterstats", "settle", "bloomadd", "bloomprobe", "xxh3"]
    names += ["lz4comp", "lz4decomp"]
    fill = {"rbloom": [], "dict": ["fillseq"]}.get(engine, ["fillseq", "flush"])
    data = bench("--num=2000", "--reads=1000", f"--engines={engine}", f"--benchmarks={','.join(fill + names)}")
    results = {result["workload"]: result for result in data["results"]}
    skipped = {skip["workload"] for skip in data["skipped"]}
    assert set(results) | skipped == {*fill, *names} and not set(results) & skipped
    has = {
        "lsmkv": {"stats", "levelstats", "sstables", "filterstats", "bloomadd", "bloomprobe"},
        "rocksdb": {"stats", "levelstats", "sstables"},
        "leveldb": {"stats", "sstables"},
        "lmdb": {"stats"},
        "dict": set(),
        "rbloom": {"bloomadd", "bloomprobe"},
    }
    assert set(results) == {*has[engine], *fill, "settle", "xxh3", "lz4comp", "lz4decomp"}
    assert all(results[name]["lines"] for name in has[engine] if not name.startswith("bloom"))
    if "bloomprobe" in has[engine]:
        assert 0 <= results["bloomprobe"]["detail"]["false_positive_rate"] < 0.03


def test_json_says_where_it_comes_from(bench: Any) -> None:
    data = bench(
        "--num=500", "--engines=dict", "--benchmarks=fillrandom,readrandom[X3-W1]", "--runs=2", "--seed=5"
    )
    assert data["schema"] == 1
    assert data["versions"] == {"dict": sys.version.split()[0]}
    assert data["settings"]["seed"] == 5
    assert {"cpu", "cores", "memory", "system", "python", "date", "filesystem"} <= set(data["machine"])
    assert data["command"].startswith("lsmkv-bench --num=500")
    assert "durability" in data["mappings"]["dict"]
    reads = [r for r in data["results"] if r["workload"] == "readrandom"]
    assert [(r["run"], r["repeat"]) for r in reads] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    latency = reads[0]["latency"]
    assert latency["p50"] <= latency["p75"] <= latency["p99"] <= latency["p99.9"] <= latency["p99.99"]
    assert latency["p99.99"] <= latency["max"]
    assert latency["histogram"]["count"] == reads[0]["ops"] == 500


def test_same_seed_same_answers_for_every_engine(bench: Any) -> None:
    steps = "fillrandom,overwrite:writes=300,readrandom,readhot,deleterandom:writes=300,readrandom:title=last"
    data = bench(
        "--num=3000", "--settle=0", f"--engines={','.join(installed_engines())}", f"--benchmarks={steps}"
    )
    found: dict[str, set[int]] = {}
    for result in data["results"]:
        if result["found"] is not None:
            found.setdefault(result["workload"], set()).add(result["found"])
    assert set(found) == {"readrandom", "readhot", "last"}
    assert all(len(counts) == 1 for counts in found.values()), found


def test_outputs_and_compare(tmp_path: Path) -> None:
    files = {kind: tmp_path / "new" / f"out.{kind}" for kind in ("json", "csv", "md")}
    words = ["--num=500", "--engines=dict", "--benchmarks=fillrandom,readrandom", "--histogram"]
    done = run_cli(
        *words, "--json", str(files["json"]), "--csv", str(files["csv"]), "--markdown", str(files["md"])
    )
    assert "micros/op" in done.stdout and "Percentiles: P50:" in done.stdout
    with files["csv"].open() as file:
        rows = list(csv.DictReader(file))
    assert [row["workload"] for row in rows] == ["fillrandom", "readrandom"]
    assert "## Ratios" in files["md"].read_text()
    same = run_cli("--load", str(files["json"]), "--compare", str(files["json"]), "--fail-if-slower", "10%")
    assert "+0.0%" in same.stdout

    data = json.loads(files["json"].read_text())
    for result in data["results"]:
        result["micros_per_op"] *= 0.5
    faster = tmp_path / "faster.json"
    faster.write_text(json.dumps(data))
    slow = run_cli(
        "--load", str(files["json"]), "--compare", str(faster), "--fail-if-slower=10%", check=False
    )
    assert slow.returncode == 1
    assert "slower: fillrandom takes +100.0% time" in slow.stdout


def test_slim_json_can_be_loaded(tmp_path: Path) -> None:
    slim = tmp_path / "slim.json"
    run_cli("--num=500", "--engines=dict", "--benchmarks=fillrandom", "--slim-json", str(slim))
    assert "histogram" not in json.loads(slim.read_text())["results"][0]["latency"]
    assert "fillrandom" in run_cli("--load", str(slim)).stdout


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    run_cli("--num=500", "--engines=dict", "--benchmarks=fillrandom,readrandom", "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_missing_engine_is_named_and_left_out(tmp_path: Path) -> None:
    """A package whose metadata cannot be found counts as not installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib import metadata\n"
        "real = metadata.version\n"
        "def version(name):\n"
        "    if name == 'plyvel':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n"
    )
    done = run_cli(
        "--num=100", "--engines=dict,leveldb", "--benchmarks=fillseq", env={"PYTHONPATH": str(tmp_path)}
    )
    assert "left out: leveldb: package 'plyvel' is not installed" in done.stdout
    assert "fillseq" in done.stdout


def test_a_wrong_answer_fails_the_run(tmp_path: Path) -> None:
    """A dict engine that loses one write in a hundred must not get a result."""
    (tmp_path / "sitecustomize.py").write_text(
        "import lsmkv_bench.engines.dict_engine as m\n"
        "real = m.DictEngine.open\n"
        "def open(self):\n"
        "    real(self)\n"
        "    put = self.put\n"
        "    self.put = lambda k, v: None if k.endswith(b'00') else put(k, v)\n"
        "m.DictEngine.open = open\n"
    )
    done = run_cli(
        "--num=2000",
        "--engines=dict",
        "--benchmarks=fillseq,readrandom",
        "--check-every=1",
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "dict gave a wrong answer: key b'" in done.stderr


def test_a_dying_engine_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "import lsmkv_bench.engines.dict_engine as m\n"
        "m.DictEngine.write_many = lambda self, pairs: os._exit(7)\n"
    )
    done = run_cli(
        "--num=2000",
        "--engines=dict",
        "--benchmarks=fillbatch",
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "ended with 7" in done.stderr


@pytest.mark.parametrize("engine", [name for name in installed_engines() if name != "dict"])
def test_an_existing_database_is_read_and_checked(tmp_path: Path, engine: str) -> None:
    base = ["--num=1000", "--settle=0", "--check-every=1", f"--engines={engine}", "--db", str(tmp_path)]
    run_cli(*base, "--benchmarks=fillrandom")
    done = run_cli(*base, "--use_existing_db", "--benchmarks=readrandom,readseq,overwrite,readrandom")
    assert "micros/op" in done.stdout


def test_a_folder_of_somebody_else_was_removed(tmp_path: Path) -> None:
    """`--db=.` took the folder `lsmkv` in it for a database of an earlier run."""
    (tmp_path / "lsmkv").mkdir()
    thesis = tmp_path / "lsmkv" / "thesis.txt"
    thesis.write_text("years of work")
    words = ["--num=100", "--engines=lsmkv", "--benchmarks=fillseq", "--settle=0", "--db", str(tmp_path)]
    done = run_cli(*words, check=False)
    assert done.returncode == 2 and "is in the way" in done.stderr
    assert thesis.read_text() == "years of work"
    thesis.unlink()
    run_cli(*words)  # an empty folder is nobody's
    run_cli(*words)  # and this one is ours


def test_existing_database_without_its_ledger_is_refused(tmp_path: Path) -> None:
    done = run_cli(
        "--num=100",
        "--engines=dict",
        "--db",
        str(tmp_path),
        "--use-existing-db",
        "--benchmarks=readseq",
        check=False,
    )
    assert done.returncode == 1
    assert "ledger" in done.stderr and "Traceback" not in done.stderr


def test_an_option_that_the_engine_does_not_have_is_refused() -> None:
    done = run_cli("--num=100", "--engines=lsmkv", "--option=lsmkv.none=1", "--benchmarks=fillseq", check=False)
    assert done.returncode == 1
    assert "lsmkv: cannot open its database" in done.stderr and "Traceback" not in done.stderr


def test_engines_take_turns_step_by_step(bench: Any) -> None:
    """What a ratio compares is measured seconds apart, and each engine is the first of some step."""
    data = bench("--num=500", "--engines=lsmkv,dict", "--benchmarks=fillseq,readrandom,fillrandom", "--runs=2")
    order = [(r["run"], r["workload"], r["engine"]) for r in data["results"]]
    assert order == [
        (0, "fillseq", "lsmkv"),
        (0, "fillseq", "dict"),
        (0, "readrandom", "dict"),
        (0, "readrandom", "lsmkv"),
        (0, "fillrandom", "lsmkv"),
        (0, "fillrandom", "dict"),
        (1, "fillseq", "dict"),
        (1, "fillseq", "lsmkv"),
        (1, "readrandom", "lsmkv"),
        (1, "readrandom", "dict"),
        (1, "fillrandom", "dict"),
        (1, "fillrandom", "lsmkv"),
    ]


def test_an_engine_stands_still_while_it_is_anothers_turn(tmp_path: Path) -> None:
    """Its background threads would otherwise run in the other's time."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, threading, time\n"
        "import lsmkv_bench.engines.dict_engine as m\n"
        "real = m.DictEngine.open\n"
        "def count():\n"
        "    with open(os.environ['COUNT'], 'w') as file:\n"
        "        while True:\n"
        "            time.sleep(0.001)\n"
        "            print(time.monotonic(), file=file, flush=True)\n"
        "def open_and_count(self):\n"
        "    real(self)\n"
        "    threading.Thread(target=count, daemon=True).start()\n"
        "m.DictEngine.open = open_and_count\n"
    )
    ticks = tmp_path / "ticks"
    run_cli(
        "--num=1000",
        "--engines=dict,lsmkv",
        "--benchmarks=fillseq,readrandom:duration=2,readrandom",
        env={"PYTHONPATH": str(tmp_path), "COUNT": str(ticks)},
    )
    times = [float(line) for line in ticks.read_text().splitlines()]
    assert max(b - a for a, b in itertools.pairwise(times)) > 1.9


def test_engines_get_ready_one_after_the_other(tmp_path: Path) -> None:
    """All measured the cost of their timer at once, beside the first one's first step."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "import lsmkv_bench.session as m\n"
        "def slow():\n"
        "    began = time.monotonic()\n"
        "    while time.monotonic() - began < 0.3:\n"
        "        time.sleep(0.01)\n"
        "    with open(os.environ['TIMES'], 'a') as file:\n"
        "        print(began, time.monotonic(), file=file)\n"
        "    return 0.0\n"
        "m.timer_cost = slow\n"
    )
    times = tmp_path / "times"
    run_cli(
        *("--num=500", "--engines=dict,lsmkv", "--benchmarks=fillseq", "--settle=0"),
        env={"PYTHONPATH": str(tmp_path), "TIMES": str(times)},
    )
    spans = sorted(tuple(map(float, line.split())) for line in times.read_text().splitlines())
    assert len(spans) == 2 and spans[0][1] <= spans[1][0]


def test_an_error_of_an_engine_is_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import lsmkv_bench.engines.dict_engine as m\n"
        "def refuse(self, pairs):\n"
        "    raise OSError('the disk is made of cheese')\n"
        "m.DictEngine.write_many = refuse\n"
    )
    done = run_cli(
        *("--num=500", "--engines=dict", "--benchmarks=fillbatch"),
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "lsmkv-bench: dict: OSError: the disk is made of cheese"


@pytest.mark.parametrize("to_all", [True, False])
def test_a_signal_ends_everything_and_leaves_nothing(tmp_path: Path, to_all: bool) -> None:
    """Ctrl-C at a terminal goes to the runner and to its workers, a SIGTERM of `timeout` to the runner."""
    words = ["--num=1000", "--engines=dict,lsmkv", "--benchmarks=fillseq,readrandom:duration=60"]
    with subprocess.Popen(
        [sys.executable, "-m", "lsmkv_bench.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as running:
        assert running.stdout is not None
        while "fillseq" not in running.stdout.readline():
            pass
        if to_all:
            os.killpg(running.pid, signal.SIGINT)
        else:
            running.terminate()
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (130 if to_all else 143, "")
    assert list(tmp_path.iterdir()) == []


def test_list() -> None:
    assert {line.split()[0] for line in run_cli("--list").stdout.splitlines()} == set(WORKLOADS)
