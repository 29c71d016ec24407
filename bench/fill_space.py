"""The disk space of two engines at one moment: when the peer has finished its random puts.

    python -m lsmkv_bench.fill_space [--num N] [--peer rocksdb] [--json]

The engines fill one after the other. A faster one has the rest of the time for its background work, and a slower one is
looked at in the middle of its fill.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .engines import engine_class
from .native.workload import KeyGenerator, ValueGenerator, make_keys
from .resources import disk_size
from .settings import Settings
from .standalone import make_parser, print_figures

MIB = 1 << 20
CHUNK = 16384  # puts between two looks at the disk
IDLE_LOOK = 0.5  # seconds between two looks after the fill

Samples = list[tuple[float, int]]  # seconds since the first put, bytes on disk


def _fill(put: Callable[[bytes, bytes], Any], path: str, num: int, settings: Settings) -> Samples:
    """Random puts. Making keys and values takes no part of the time."""
    keys = KeyGenerator("uniform", num, settings.seed)
    values = ValueGenerator(settings.seed)
    samples, passed = [], 0.0
    for at in range(0, num, CHUNK):
        numbers = keys.take(min(CHUNK, num - at))
        pairs = list(zip(make_keys(numbers, settings.key_size), values.values(numbers, 1), strict=True))
        began = time.perf_counter()
        for key, value in pairs:
            put(key, value)
        passed += time.perf_counter() - began
        samples.append((passed, disk_size(path)))
    return samples


def _run(name: str, path: str, num: int, until: float = 0.0) -> Samples:
    """Looks at the disk during the fill and, if it ends before `until` seconds, afterwards."""
    settings = Settings()
    engine = engine_class(name)(path, settings)
    engine.open()
    try:
        samples = _fill(engine.put, path, num, settings)
        filled = time.perf_counter() - samples[-1][0]
        while samples[-1][0] < until:
            time.sleep(min(IDLE_LOOK, max(0.0, until - samples[-1][0])))
            samples.append((time.perf_counter() - filled, disk_size(path)))
    finally:
        engine.close()
    return samples


def measure(scratch: Path, num: int, peer: str) -> dict[str, Any]:
    theirs = _run(peer, str(scratch / "theirs"), num)
    seconds, their_bytes = theirs[-1]
    ours = _run("lsmkv", str(scratch / "ours"), num, until=seconds)
    moment = min(bisect_left(ours, (seconds, 0)), len(ours) - 1)
    return {
        "num": num,
        "peer": peer,
        "peer_seconds": seconds,
        "peer_bytes": their_bytes,
        "lsmkv_fill_seconds": ours[-(-num // CHUNK) - 1][0],
        "lsmkv_fill_bytes": ours[-(-num // CHUNK) - 1][1],
        "lsmkv_bytes": ours[moment][1],
    }


def show(found: dict[str, Any]) -> None:
    peer, ratio = found["peer"], found["lsmkv_bytes"] / found["peer_bytes"]
    print(f"{peer}: {found['num']:,} puts in {found['peer_seconds']:.1f} s, {found['peer_bytes'] / MIB:.0f} MiB")
    print(f"lsmkv: in {found['lsmkv_fill_seconds']:.1f} s, {found['lsmkv_fill_bytes'] / MIB:.0f} MiB")
    print(f"lsmkv when {peer} has finished: {found['lsmkv_bytes'] / MIB:.0f} MiB, {ratio:.2f} times as much")


def main(argv: list[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--num", type=int, default=10_000_000, help="random puts (%(default)s)")
    parser.add_argument("--peer", default="rocksdb", help="(%(default)s)")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(Path(scratch), given.num, given.peer)
    print_figures(found, given.json, show)


if __name__ == "__main__":
    main()
