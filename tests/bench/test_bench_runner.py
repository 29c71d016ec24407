"""The runner and its worker processes: turns, failures, signals, folders."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchrunner import DATABASES, inject, run_cli

from lsmkv_bench.runner import rotation

DICT_ENGINE = "from lsmkv_bench.engines.dict_engine import DictEngine\n"


def test_rotation_puts_each_engine_first() -> None:
    orders = [rotation(["a", "b", "c"], run) for run in range(3)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert rotation([], 1) == []


def test_engines_take_turns_step_by_step(bench: Any) -> None:
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


def test_another_build_runs_as_the_engine_before(bench: Any, tmp_path: Path) -> None:
    """Its worker imports lsmkv from that checkout. This one is the same code, and marks the folder it runs in."""
    before = tmp_path / "checkout"
    before.mkdir()
    for name in ("lsmkv", "lsmkv_ext"):
        os.symlink(Path(sys.modules[name].__file__ or "").parent, before / name)
    (before / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    data = bench("--num=500", "--engines=lsmkv", f"--before={before}", "--benchmarks=fillseq,readrandom")
    assert [(r["workload"], r["engine"]) for r in data["results"]] == [
        ("fillseq", "lsmkv"),
        ("fillseq", "before"),
        ("readrandom", "before"),
        ("readrandom", "lsmkv"),
    ]
    assert (tmp_path / "ran").exists()


def test_before_needs_a_checkout(tmp_path: Path) -> None:
    for words in (["--engines=lsmkv,before"], [f"--before={tmp_path}"]):
        done = run_cli("--num=10", "--benchmarks=fillseq", *words, check=False)
        assert done.returncode == 2
        assert "needs --before FOLDER" in done.stderr


def test_engine_is_stopped_while_another_runs(tmp_path: Path) -> None:
    code = (
        "import os, threading, time\n" + DICT_ENGINE + "real = DictEngine.open\n"
        "def count():\n"
        "    with open(os.environ['COUNT'], 'w') as file:\n"
        "        while True:\n"
        "            time.sleep(0.001)\n"
        "            print(time.monotonic(), file=file, flush=True)\n"
        "def open_and_count(self):\n"
        "    real(self)\n"
        "    threading.Thread(target=count, daemon=True).start()\n"
        "DictEngine.open = open_and_count\n"
    )
    ticks = tmp_path / "ticks"
    run_cli(
        "--num=1000",
        "--engines=dict,lsmkv",
        "--benchmarks=fillseq,readrandom:duration=2,readrandom",
        env=inject(tmp_path, code, COUNT=str(ticks)),
    )
    times = [float(line) for line in ticks.read_text().splitlines()]
    assert max(b - a for a, b in itertools.pairwise(times)) > 1.9


def test_workers_prepare_one_after_the_other(tmp_path: Path) -> None:
    """A worker measures the cost of its timer while no other runs."""
    code = (
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
        env=inject(tmp_path, code, TIMES=str(times)),
    )
    spans = sorted(tuple(map(float, line.split())) for line in times.read_text().splitlines())
    assert len(spans) == 2 and spans[0][1] <= spans[1][0]


def test_missing_engine_is_left_out(tmp_path: Path) -> None:
    """A package without metadata is not installed."""
    code = (
        "from importlib import metadata\n"
        "real = metadata.version\n"
        "def version(name):\n"
        "    if name == 'plyvel':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n"
    )
    env = inject(tmp_path, code)
    done = run_cli("--num=100", "--engines=dict,leveldb", "--benchmarks=fillseq", env=env)
    assert "left out: leveldb: package 'plyvel' is not installed" in done.stdout
    assert "fillseq" in done.stdout


LOSES_WRITES = (
    DICT_ENGINE + "real = DictEngine.open\n"
    "def open(self):\n"
    "    real(self)\n"
    "    put = self.put\n"
    "    self.put = lambda k, v: None if k.endswith(b'00') else put(k, v)\n"
    "DictEngine.open = open\n"
)
DIES = "import os\n" + DICT_ENGINE + "DictEngine.write_batch = lambda self, pairs: os._exit(7)\n"
RAISES = (
    DICT_ENGINE + "def write_batch(self, pairs):\n"
    "    raise OSError('disk failure')\n"
    "DictEngine.write_batch = write_batch\n"
)


@pytest.mark.parametrize(
    ("code", "steps", "message"),
    [
        (LOSES_WRITES, "fillseq,readrandom", "dict gave a wrong answer: key b'"),
        (DIES, "fillbatch", "ended with 7"),
        (RAISES, "fillbatch", "lsmkv-bench: dict: OSError: disk failure"),
    ],
    ids=["wrong answer", "process dies", "exception"],
)
def test_failing_engine_fails_the_run(tmp_path: Path, code: str, steps: str, message: str) -> None:
    done = run_cli(
        *("--num=2000", "--engines=dict", f"--benchmarks={steps}", "--check-every=1"),
        check=False,
        env=inject(tmp_path, code),
    )
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]


def test_unknown_engine_option_fails_the_run() -> None:
    done = run_cli("--num=100", "--engines=lsmkv", "--option=lsmkv.none=1", "--benchmarks=fillseq", check=False)
    assert done.returncode == 1
    assert "lsmkv: cannot open its database" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("engine", DATABASES)
def test_existing_database_is_read_and_verified(tmp_path: Path, engine: str) -> None:
    base = ["--num=1000", "--settle=0", "--check-every=1", f"--engines={engine}", "--db", str(tmp_path)]
    run_cli(*base, "--benchmarks=fillrandom")
    done = run_cli(*base, "--use_existing_db", "--benchmarks=readrandom,readseq,overwrite,readrandom")
    assert "micros/op" in done.stdout


def test_existing_database_without_expected_state_is_refused(tmp_path: Path) -> None:
    words = ["--num=100", "--engines=dict", "--db", str(tmp_path), "--use-existing-db", "--benchmarks=readseq"]
    done = run_cli(*words, check=False)
    assert done.returncode == 1
    assert "expected_state" in done.stderr and "Traceback" not in done.stderr


def test_foreign_folder_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "lsmkv").mkdir()
    thesis = tmp_path / "lsmkv" / "thesis.txt"
    thesis.write_text("years of work")
    words = ["--num=100", "--engines=lsmkv", "--benchmarks=fillseq", "--settle=0", "--db", str(tmp_path)]
    done = run_cli(*words, check=False)
    assert done.returncode == 2 and "was not created by lsmkv-bench" in done.stderr
    assert thesis.read_text() == "years of work"
    thesis.unlink()
    run_cli(*words)  # into an empty folder
    run_cli(*words)  # in place of the folder of the last run


@pytest.mark.parametrize("to_all", [True, False])
def test_signal_ends_the_workers_and_removes_the_databases(tmp_path: Path, to_all: bool) -> None:
    """Ctrl-C reaches the runner and its workers, SIGTERM the runner only."""
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
