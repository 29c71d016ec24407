"""Several transfers at once, with their progress."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeVar

Progress = Callable[[str, int, int], None]
T = TypeVar("T")
R = TypeVar("R")

PIECE = 1 << 20
# How often the owner of a pool looks after its lock, in seconds.
TICK = 30.0


class Meter:
    """Calls `progress(file, done, total)` with bytes, from one thread at a time. `check_stopped` ends the other
    transfers after one has failed.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self.stopped = False

    def add(self, name: str, n: int) -> None:
        with self._lock:
            self._done += n
            if self._progress is not None:
                self._progress(name, self._done, self._total)

    def check_stopped(self) -> None:
        if self.stopped:
            raise InterruptedError("another transfer failed")


def run_all(
    work: Callable[[T], R], items: Iterable[T], workers: int, meter: Meter, tick: Callable[[], None]
) -> list[R]:
    """The results of `work(item)` in order, computed by several threads. `tick` is called from time to time, in this
    thread. Raises the first error, after the other threads have stopped.
    """
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="lsmkv-transfer") as pool:
        futures = [pool.submit(work, item) for item in items]
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=TICK, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                tick()
        except BaseException:
            meter.stopped = True
            for future in futures:
                future.cancel()
            raise
    return [future.result() for future in futures]


def hash_file(path: str, pieces_read: Callable[[int], None] = lambda n: None) -> str:
    """The SHA-256 of a file in hex."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            pieces_read(len(piece))
    return digest.hexdigest()
