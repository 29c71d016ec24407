"""What the counters behind `db.stats()` cost: lookups with them against lookups in a build without them.

    python -m lsmkv_bench.counters_cost [--keys N] [--rounds N] [--json]

To be run in a checkout: the three modules that count are compiled once more with LSMKV_NO_COUNTERS=1, next to a
copy of all the others. Two processes, one of each build, then take turns over small portions of the same lookups;
of each portion the best time counts, by the thread's own clock, so that other processes hardly matter.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import standalone as figures

COUNTING = ("view", "engine", "table")  # modules with counters in them
PORTION = 2000  # lookups timed at once
LOOKUPS = 100_000
WORK = ("readrandom", "readmissing")


def build_without(into: Path) -> None:
    """`into`/lsmkv_ext: this build, with the counting modules compiled without their counters."""
    import lsmkv_ext

    ours = Path(next(iter(lsmkv_ext.__path__)))
    checkout = ours.parent
    if not (checkout / "setup.py").exists():
        raise SystemExit("counters_cost compiles the sources once more: run it in a checkout")
    shutil.copytree(ours, into / "lsmkv_ext", ignore=shutil.ignore_patterns("*.c", "*.pyx", "__pycache__"))
    for name in COUNTING:
        for built in (into / "lsmkv_ext").glob(f"{name}.*.so"):
            built.unlink()
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "-b", str(into), "-t", str(into / "temp")],
        cwd=checkout,
        env=os.environ | {"LSMKV_NO_COUNTERS": "1", "LSMKV_ONLY": ",".join(COUNTING)},
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


def serve(path: str, n_keys: int) -> None:
    """The worker: reads "name number" from stdin, answers with the seconds of that portion."""
    import lsmkv

    rng = random.Random(2)
    present = [_key(rng.randrange(n_keys)) for _ in range(LOOKUPS)]
    asked = {"readrandom": present, "readmissing": [key + b"." for key in present]}
    with lsmkv.open(path, "r", block_cache_size=1 << 30, row_cache_size=0) as db:
        get = db.get
        for key in map(_key, range(n_keys)):
            get(key)
        db.reset_stats()
        print("ready", flush=True)
        for line in sys.stdin:
            name, at = line.split()
            keys = asked[name][int(at) : int(at) + PORTION]
            start = time.thread_time()
            for key in keys:
                get(key)
            print(time.thread_time() - start, flush=True)
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
        self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise SystemExit("a worker of counters_cost died")
        return answer

    def seconds(self, name: str, at: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name} {at}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> int:
        """How many lookups its counters saw."""
        assert self.process.stdin is not None
        with self.process:
            self.process.stdin.close()
            return int(self._answer())


def compare(workers: dict[str, Worker], name: str, rounds: int) -> dict[str, float]:
    """Nanoseconds per lookup of each build."""
    starts = range(0, LOOKUPS, PORTION)
    best = {(build, at): math.inf for build in workers for at in starts}
    order = list(workers)
    for _ in range(rounds):
        for at in starts:
            for build in order:
                best[build, at] = min(best[build, at], workers[build].seconds(name, at))
            order.reverse()
    return {build: sum(best[build, at] for at in starts) / LOOKUPS * 1e9 for build in workers}


def measure(scratch: Path, n_keys: int, rounds: int) -> dict[str, Any]:
    build_without(scratch / "without")
    _load(scratch / "db", n_keys)
    workers = {
        "with": Worker(None, scratch / "db", n_keys),
        "without": Worker(scratch / "without", scratch / "db", n_keys),
    }
    result: dict[str, Any] = {"keys": n_keys, "rounds": rounds}
    for name in WORK:
        ns = compare(workers, name, rounds)
        result[name] = ns | {"cost": ns["with"] / ns["without"] - 1}
    result["counted"] = {build: worker.close() for build, worker in workers.items()}
    return result


def show(result: dict[str, Any]) -> None:
    print(f"{result['keys']:,} keys, all cached; nanoseconds per lookup, {result['rounds']} rounds in turns")
    for name in WORK:
        row = result[name]
        print(f"  {name:12} {row['with']:7.1f} with counters, {row['without']:7.1f} without: {row['cost']:+.1%}")
    counted = result["counted"]
    print(f"lookups the counters saw: {counted['with']:,} with, {counted['without']:,} without")


def main(argv: list[str] | None = None) -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), arguments.keys, arguments.rounds)
    figures.put_out(result, arguments.json, show)


if __name__ == "__main__":
    main()
