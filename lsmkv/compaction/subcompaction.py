"""Subcompactions: one compaction as several parallel jobs, each over its own range of keys.

Only manual compactions use them: automatic ones would take the cores that readers and writers need.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from lsmkv.version.version import TableMeta
from lsmkv_ext.compaction.job import Job
from lsmkv_ext.port.finalization import RLock, start_thread
from lsmkv_ext.port.section import section
from lsmkv_ext.table.table import Table

# Input bytes of a subcompaction, at least: for less, a thread and an output file of its own hardly pay.
MIN_BYTES = 8 << 20
# Keys sampled per table to find the cuts.
SAMPLES = 64


def cuts(tables: Iterable[Table], limit: int, min_bytes: int | None = None) -> list[bytes]:
    """The keys, in order, at which to cut the tables into at most `limit` parts of about equal size, each of at least
    `min_bytes`, or the size that a subcompaction needs.
    """
    tables = list(tables)
    total = sum(table.file_size for table in tables)
    count = min(limit, total // (min_bytes or MIN_BYTES))
    if count < 2:
        return []
    weighted = []
    for table in tables:
        sample = _sample(table.separators())
        weighted += [(key, table.file_size / len(sample)) for key in sample]
    found: list[bytes] = []
    passed = 0.0
    for key, weight in sorted(weighted):
        passed += weight
        if passed >= total * (len(found) + 1) / count and (not found or key > found[-1]):
            found.append(key)
    return found[: count - 1]


def pieces(files: Sequence[TableMeta], size: int) -> list[Sequence[TableMeta]]:
    """Cuts the files into runs of about `size` bytes, or of one file."""
    found: list[list[TableMeta]] = []
    room = 0
    for f in files:
        if not found or f.size > room:
            found.append([])
            room = size
        found[-1].append(f)
        room -= f.size
    return [*found]


def _sample(keys: list[bytes]) -> list[bytes]:
    return keys[:: max(1, len(keys) // SAMPLES)]


class SubcompactionJob:
    """Has the interface of a Job. If one subcompaction fails, the others are cancelled and all outputs are removed."""

    def __init__(
        self,
        make: Callable[[bytes | None, bytes | None], Job],
        keys: Sequence[bytes],
        discard: Callable[[list[TableMeta]], None],
    ) -> None:
        self._jobs = [make(start, stop) for start, stop in pairwise([None, *keys, None])]
        self._discard = discard
        self._lock = RLock()
        self._error: BaseException | None = None
        self._outcomes: list[dict[str, Any] | None] = [None] * len(self._jobs)

    def cancel(self) -> None:
        for job in self._jobs:
            job.cancel()

    @property
    def progress(self) -> dict[str, int]:
        each = [job.progress for job in self._jobs]
        done = {name: sum(p[name] for p in each) for name in ("entries_done", "bytes_written")}
        return {**each[0], **done}

    def run(self) -> dict[str, Any]:
        began = time.monotonic_ns()
        here = [0]
        threads: list[threading.Thread] = []
        try:
            for i in range(1, len(self._jobs)):
                name = f"lsmkv-subcompaction-{i}"
                thread = threading.Thread(target=section, args=(self._run_one, i), name=name, daemon=True)
                threads.append(thread)
                try:
                    start_thread(thread)
                except BaseException as error:
                    threads.remove(thread)
                    if not isinstance(error, RuntimeError):
                        raise
                    here.append(i)  # no thread to be had: at a limit, or while the interpreter finalizes
            for i in here:
                self._run_one(i)
        except BaseException as error:
            self._fail(error)
        for thread in threads:
            thread.join()
        outcomes = [outcome for outcome in self._outcomes if outcome is not None]
        if self._error is not None:
            self._discard([output for outcome in outcomes for output in outcome["outputs"]])
            try:
                raise self._error
            finally:
                # The error refers to this frame: a cycle would keep the tables, and so their files.
                self._error = None
        return together(outcomes, time.monotonic_ns() - began)

    def _run_one(self, i: int) -> None:
        try:
            self._outcomes[i] = self._jobs[i].run()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            # The first one is the cause; the others were cancelled.
            self._error = self._error or error
        self.cancel()


def together(outcomes: Sequence[dict[str, Any]], ns: int) -> dict[str, Any]:
    """Merges the outcomes. Each of them counts all of the input, but only its own outputs."""
    summed = (
        *("bytes_written", "entries_out", "dropped_deletes", "dropped_covered", "expired", "expired_bytes"),
        *("values_copied", "filter_build_ns", "filter_verify_ns"),
    )
    return {
        **outcomes[0],
        **{name: sum(outcome[name] for outcome in outcomes) for name in summed},
        "outputs": [output for outcome in outcomes for output in outcome["outputs"]],
        "damaged_values": [number for outcome in outcomes for number in outcome["damaged_values"]],
        "now": max(outcome["now"] for outcome in outcomes),
        "ns": ns,
    }
