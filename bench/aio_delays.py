"""How late an event loop is while a task writes to a database in it: `python -m lsmkv_bench.aio_delays`.

Another process writes the time into a pipe, once a millisecond, as a client would send requests. The loop reads the
pipe; the delay of a request is how long it has waited there. Meanwhile one task overwrites keys at a rate, flushes and
compactions included, and one reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import lsmkv.aio

PAUSE = 0.001
STAMP = struct.Struct("<q")
# CLOCK_MONOTONIC is the same for all processes.
SENDER = """
import os, struct, sys, time
period = int(sys.argv[1])
due = time.monotonic_ns()
while True:
    due += period
    time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
    try:
        os.write(1, struct.pack("<q", time.monotonic_ns()))
    except BrokenPipeError:
        break
"""


@dataclass
class Outcome:
    delays: list[int]  # ns, sorted
    puts: int
    gets: int
    flushes: int
    compactions: int

    def at(self, share: float) -> float:
        """The delay in ms that this share of the requests did not exceed."""
        return self.delays[min(int(len(self.delays) * share), len(self.delays) - 1)] / 1e6


async def paced(call: Callable[[], Awaitable[object]], rate: int) -> None:
    """Awaits `call` so many times a second, in small bursts."""
    began, done = time.monotonic(), 0
    while True:
        while done < (time.monotonic() - began) * rate:
            await call()
            done += 1
        await asyncio.sleep(PAUSE)


def work(db: lsmkv.aio.DB, settings: argparse.Namespace, outcome: Outcome) -> list[Awaitable[None]]:
    value = os.urandom(settings.value_size)

    async def put() -> None:
        await db.put(b"%012d" % random.randrange(settings.keys), value)
        outcome.puts += 1

    async def get() -> None:
        await db.get(b"%012d" % random.randrange(settings.keys))
        outcome.gets += 1

    return [paced(put, settings.puts), paced(get, settings.gets)]


async def measure(path: str, settings: argparse.Namespace, idle: bool) -> Outcome:
    outcome = Outcome([], 0, 0, 0, 0)
    async with lsmkv.aio.open(path, write_buffer_size=settings.write_buffer_size) as db:
        running = [asyncio.ensure_future(task) for task in ([] if idle else work(db, settings, outcome))]
        outcome.delays = await listen(settings.seconds)
        for task in running:
            task.cancel()
        for ended in await asyncio.gather(*running, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise RuntimeError("a task ended early") from ended
        stats = await db.stats()
    outcome.flushes, outcome.compactions = stats.flush.count, stats.compaction.count
    return outcome


async def listen(seconds: float, period: float = 0.001) -> list[int]:
    """The delays of requests that another process sends for so long."""
    delays: list[int] = []
    loop = asyncio.get_running_loop()
    sender = subprocess.Popen([sys.executable, "-c", SENDER, str(int(period * 1e9))], stdout=subprocess.PIPE)
    assert sender.stdout is not None
    pipe = sender.stdout.fileno()

    def receive() -> None:
        now = time.monotonic_ns()
        delays.extend(now - stamp for (stamp,) in STAMP.iter_unpack(os.read(pipe, STAMP.size * 1024)))

    loop.add_reader(pipe, receive)
    try:
        await asyncio.sleep(seconds)
    finally:
        loop.remove_reader(pipe)
        sender.stdout.close()
        sender.kill()
        sender.wait()
    return sorted(delays)


def report(name: str, outcome: Outcome) -> None:
    print(
        f"{name:8} {len(outcome.delays):8} {outcome.at(0.5):8.3f} {outcome.at(0.99):8.3f} {outcome.at(0.999):8.3f}"
        f" {outcome.delays[-1] / 1e6:8.3f} {outcome.puts:10,} {outcome.gets:10,} {outcome.flushes:8}"
        f" {outcome.compactions:12}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--puts", type=int, default=50_000, help="a second")
    parser.add_argument("--gets", type=int, default=10_000, help="a second")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-size", type=int, default=100)
    parser.add_argument("--write-buffer-size", type=int, default=8 << 20)
    parser.add_argument("--dir", help="folder for the databases; a temporary one by default")
    settings = parser.parse_args()
    print("delays of requests in ms")
    print("            count      p50      p99    p99.9      max       puts       gets  flushes  compactions")
    with tempfile.TemporaryDirectory(dir=settings.dir) as folder:
        for name in ("idle", "writing"):
            path = os.path.join(folder, name)
            report(name, asyncio.run(measure(path, settings, name == "idle")))


if __name__ == "__main__":
    main()
