"""The value logs of a database: which of them are open, which have to be synced, and which are unused.

Memtables and tables hold the value logs that they point into, and read states hold memtables and tables. A value log
whose last holder is gone can be removed, unless the manifest names it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from weakref import WeakValueDictionary

from lsmkv import filenames
from lsmkv.errors import CorruptionError, FormatError, IOError
from lsmkv.version.version import TableMeta
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.engine import Engine
from lsmkv_ext.table.table import Table
from lsmkv_ext.values.reader import ValueLog
from lsmkv_ext.values.writer import ValueWriter


def ingested_log(table: Table) -> int:
    """The number of the value log that an ingested table brought along, found by its identity in the directory of the
    table. 0 for any other table, or if it is missing.
    """
    (use, *_) = (*table.meta.value_logs, None)
    if use is None or use.number:
        return 0
    directory = os.path.dirname(table.path)
    for name, kind, number in filenames.list_directory(directory):
        if kind is filenames.FileKind.VALUE_LOG:
            with suppress(CorruptionError, FormatError, OSError):
                if ValueLog(os.path.join(directory, name), number).identity == use.identity:
                    return number
    return 0


def live_bytes(files: Iterable[TableMeta]) -> dict[int, int]:
    """The bytes that tables point to, by value log."""
    live: dict[int, int] = {}
    for use in (use for f in files for use in f.value_logs):
        live[use.number] = live.get(use.number, 0) + use.bytes
    return live


class ValueLogs:
    """Those of one database. The version set's lock guards the writers."""

    def __init__(self, directory: str, fds: FdCache, engine: Engine) -> None:
        self.directory = directory
        self._fds = fds
        self._engine = engine
        self._open: WeakValueDictionary[int, ValueLog] = WeakValueDictionary()
        self._writers: dict[int, ValueWriter] = {}  # of memtables that are not flushed
        self._arriving = 0  # the number of the newest writer, until a rotation
        self._released: list[int] = []  # numbers whose last holder is gone
        self.damaged: set[int] = set()  # a value in them cannot be read, so they are not collected

    def create(self, number: int) -> ValueWriter:
        """A new value log. The caller makes its name durable."""
        writer = self.create_sealed(number)
        self._arriving = number
        self._writers[number] = writer
        return writer

    def create_sealed(self, number: int) -> ValueWriter:
        """A new value log for one value. The caller syncs it before anything points into it."""
        writer = ValueWriter(filenames.value_log_path(self.directory, number), number, self._fds)
        writer.log.report_release(self._released)
        self._open[number] = writer.log
        return writer

    def arrived(self) -> None:
        """The engine holds the newest writer. The caller holds the writer's turn."""
        self._arriving = 0

    @property
    def active(self) -> ValueWriter | None:
        """The value log of puts, from its creation to the next rotation."""
        return self._writers.get(self._arriving)

    def is_open(self, number: int) -> bool:
        return number in self._open

    def open(self, number: int, identity: int) -> ValueLog:
        """Raises CorruptionError if it is missing or another one."""
        log = self._open.get(number)
        if log is not None and log.identity == identity:
            return log
        path = filenames.value_log_path(self.directory, number)
        try:
            log = ValueLog(path, number, self._fds, identity=identity)
        except IOError as error:
            if error.errno != errno.ENOENT:
                raise
            raise CorruptionError("a value log is missing", path) from None
        log.report_release(self._released)
        self._open[number] = log
        return log

    def find(self, number: int, identity: int) -> ValueLog | None:
        """None if it is missing or another one."""
        with suppress(CorruptionError):
            return self.open(number, identity)
        return None

    def of(self, f: TableMeta) -> list[ValueLog]:
        """The value logs that a table points into. Raises CorruptionError unless they reach to its last value."""
        logs = [self.open(use.number, use.identity) for use in f.value_logs]
        for use, log in zip(f.value_logs, logs, strict=True):
            if log.size < use.end:
                raise CorruptionError("the value log is shorter than a table says", log.path, log.size)
        return logs

    def sync(self, files: Iterable[TableMeta]) -> None:
        """Seals and syncs the value logs that these tables point into, before an edit names the tables."""
        for number in sorted({use.number for f in files for use in f.value_logs}):
            writer = self._writers.get(number)
            if writer is not None:
                writer.seal()

    def live(self) -> set[int]:
        """The numbers of the value logs that memtables point into, or that is being written."""
        live = {log.number for memtable in self._engine.memtables for log in memtable.value_logs}
        return live if self._engine.values is None else live | {self._engine.values.number}

    def to_collect(self, files: Iterable[TableMeta], ratio: float) -> frozenset[int]:
        """The value logs to collect: those with the largest share of garbage, until all together take at most `ratio`
        times the bytes that tables point to. Only sealed ones, of which all is in tables.
        """
        live = live_bytes(files)
        for number in self.live():
            live.pop(number, None)
        sizes = {number: log.size for number in live if (log := self._open.get(number)) is not None}
        excess = sum(sizes.values()) - ratio * sum(live[number] for number in sizes)
        chosen = []
        for number in sorted(sizes.keys() - self.damaged, key=lambda n: live[n] / sizes[n]):
            if excess <= 0:
                break
            chosen.append(number)
            excess -= sizes[number] - live[number]
        return frozenset(chosen)

    def totals(self, files: Iterable[TableMeta]) -> dict[str, int]:
        """Their number, their bytes, and the live bytes and garbage among these."""
        # valuerefs() is one step: a log that another thread opens or drops meanwhile would break an iteration.
        logs = [log for ref in self._open.valuerefs() if (log := ref()) is not None]
        live, sizes = live_bytes(files), {log.number: log.size for log in logs}
        garbage = sum(size - live.get(n, 0) for n, size in sizes.items() if n not in self.live())
        in_use = {"files": len(sizes), "bytes": sum(sizes.values()), "live_bytes": sum(live.values())}
        return {**in_use, "garbage_bytes": garbage}

    def waiting_for_readers(self, files: Iterable[TableMeta]) -> bool:
        """Whether a reader held a value log at the last look that no table or memtable points into. `files` are the
        manifest's tables.
        """
        if self._released:
            return True
        held = {log.number for ref in self._open.valuerefs() if (log := ref()) is not None}
        held -= self.live() | {self._arriving}
        return bool(held) and not held <= {use.number for f in files for use in f.value_logs}

    def unused(self, files: Iterable[TableMeta]) -> list[str]:
        """Names of value logs that are unused, each returned once. `files` are the manifest's tables."""
        if self._writers:
            kept = self.live() | {self._arriving}
            self._writers = {number: writer for number, writer in self._writers.items() if number in kept}
        if not self._released:
            return []
        released = [self._released.pop() for _ in range(len(self._released))]
        named = {use.number for f in files for use in f.value_logs}
        names = [filenames.value_log_name(n) for n in sorted(set(released)) if n not in named and n not in self._open]
        return [name for name in names if os.path.lexists(os.path.join(self.directory, name))]
