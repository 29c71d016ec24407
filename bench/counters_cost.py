"""The cost of the counters behind `db.stats()`: lookups with them and in a build without them.

    python -m lsmkv_bench.counters_cost [--keys N] [--rounds N] [--json]

Run it in a checkout: it compiles the modules with counters once more with LSMKV_NO_COUNTERS=1. Two processes,
one per build, take turns on small portions of the same lookups. The best CPU time of each portion counts.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .standalone import best_in_turns, run_in_scratch, thread_seconds

PORTION = 2000  # lookups per measurement
LOOKUPS = 100_000
WORKLOADS = ("readrandom", "readmissing")


def counting_modules(package: Path) -> list[str]:
    """The modules of the package whose code has counters."""
    sources = [source for source in sorted(package.rglob("*.pyx")) if "lsm_count(" in source.read_text()]
    return [".".join(source.relative_to(package.parent).with_suffix("").parts) for source in sources]


def build_without(into: Path) -> None:
    """Build lsmkv_ext without counters in the folder `into`."""
    import lsmkv_ext

    ours = Path(next(iter(lsmkv_ext.__path__)))
    checkout = ours.parent
    if not (checkout / "setup.py").exists():
        raise SystemExit("counters_cost needs a checkout: it compiles the sources")
    shutil.copytree(ours, into / "lsmkv_ext", ignore=shutil.ignore_patterns("*.c", "*.pyx", "__pycache__"))
    counting = counting_modules(ours)
    for name in counting:
        for built in into.glob(f"{name.replace('.', '/')}.*.so"):
            built.unlink()
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "-b", str(into), "-t", str(into / "temp")],
        cwd=checkout,
        env=os.environ | {"LSMKV_NO_COUNTERS": "1", "LSMKV_ONLY": ",".join(counting)},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _key(i: int) -> bytes:
    return b"%016d" % i


def _load(path: Path, n_keys: int) -> None:
    import lsmkv

    order = list(range(n_keys))
    random.Random(1).shuffle(order)
    with lsmkv.open(path, wal=None) as db:
        for start in range(0, n_keys, 1000):
            with db.write_batch() as batch:
                for i in order[start : start + 1000]:
                    batch.put(_key(i), b"%d" % i * 20)
        db.compact_range()


def _get_all(get: Callable[[bytes], Any], keys: list[bytes]) -> None:
    for key in keys:
        get(key)


def serve(path: str, n_keys: int) -> None:
    """The worker: reads "workload portion" from stdin and prints the seconds of that portion."""
    import lsmkv

    rng = random.Random(2)
    present = [_key(rng.randrange(n_keys)) for _ in range(LOOKUPS)]
    lookups = {"readrandom": present, "readmissing": [key + b"." for key in present]}
    with lsmkv.open(path, "r", block_cache_size=1 << 30, row_cache_size=0) as db:
        get = db.get
        for key in map(_key, range(n_keys)):
            get(key)
        db.reset_stats()
        print("ready", flush=True)
        for line in sys.stdin:
            name, portion = line.split()
            start = int(portion) * PORTION
            keys = lookups[name][start : start + PORTION]
            print(thread_seconds(partial(_get_all, get, keys)), flush=True)
        print(db.stats().reads.gets, flush=True)


class Worker:
    def __init__(self, packages: Path | None, path: Path, n_keys: int) -> None:
        paths = [str(packages)] if packages else []
        paths += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        script = "import sys; from lsmkv_bench.counters_cost import serve; serve(sys.argv[1], int(sys.argv[2]))"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", script, str(path), str(n_keys)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        self._read_line()

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit("a worker of counters_cost died")
        return line

    def seconds(self, name: str, portion: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name} {portion}\n")
        self.process.stdin.flush()
        return float(self._read_line())

    def close(self) -> int:
        """The number of lookups that its counters saw."""
        assert self.process.stdin is not None
        with self.process:
            self.process.stdin.close()
            return int(self._read_line())


def compare(workers: dict[str, Worker], name: str, rounds: int) -> dict[str, float]:
    """Nanoseconds per lookup of each build."""
    timers = {build: partial(worker.seconds, name) for build, worker in workers.items()}
    best = best_in_turns(timers, LOOKUPS // PORTION, rounds)
    return {build: seconds / LOOKUPS * 1e9 for build, seconds in best.items()}


def measure(scratch: Path, keys: int, rounds: int) -> dict[str, Any]:
    build_without(scratch / "without")
    _load(scratch / "db", keys)
    workers = {
        "with": Worker(None, scratch / "db", keys),
        "without": Worker(scratch / "without", scratch / "db", keys),
    }
    result: dict[str, Any] = {"keys": keys, "rounds": rounds}
    for name in WORKLOADS:
        ns = compare(workers, name, rounds)
        result[name] = ns | {"cost": ns["with"] / ns["without"] - 1}
    result["counted"] = {build: worker.close() for build, worker in workers.items()}
    return result


def show(result: dict[str, Any]) -> None:
    print(f"{result['keys']:,} keys, all cached; nanoseconds per lookup, best of {result['rounds']} rounds")
    for name in WORKLOADS:
        row = result[name]
        print(f"  {name:12} {row['with']:7.1f} with counters, {row['without']:7.1f} without: {row['cost']:+.1%}")
    counted = result["counted"]
    print(f"lookups counted: {counted['with']:,} with counters, {counted['without']:,} without")


def main(argv: list[str] | None = None) -> None:
    run_in_scratch(__doc__, measure, show, argv, keys=1_000_000, rounds=15)


if __name__ == "__main__":
    main()
