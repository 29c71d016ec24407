"""Opens a database for a reader: one consistent state, read beside a writer that may change the files at any time.

A reader holds no lock and writes nothing into the directory.
"""

from __future__ import annotations

import errno
import logging
import tempfile
import time
from collections.abc import Callable

from lsmkv import filenames
from lsmkv.compaction.jobs import Jobs
from lsmkv.errors import ClosedError, CorruptionError, Error, IOError
from lsmkv.files import is_named
from lsmkv.lockfile import is_locked
from lsmkv.options import Options
from lsmkv.recovery import stored_state
from lsmkv.recovery.replay import Piece, replay
from lsmkv.recovery.stored_state import AddedFile, RecoveryReport
from lsmkv.version.edit import VersionEdit
from lsmkv.version.freshness import Seen
from lsmkv.version.manifest import decode_manifest
from lsmkv.version.version import TableMeta
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.wall_clock import ManualClock
from lsmkv_ext.read.read_state import ReadState
from lsmkv_ext.table.table import Table
from lsmkv_ext.wal.reader import HEAD_SIZE

log = logging.getLogger("lsmkv")

# How often in a row the same file may fail before it counts as damaged.
READ_ATTEMPTS = 20
# How long and how often, both at least, a reader tries while the writer is ahead of it.
RETRY_SECONDS = 2.0
LEAST_ATTEMPTS = 5


class _Attempts:
    """What attempts to read one database share. Tables stay open: once open, a removed file can still be read, so each
    attempt opens only the tables that are new.
    """

    def __init__(self, options: Options, clock: ManualClock | None) -> None:
        self.clock = clock
        self.caches = stored_state.new_caches(options)
        self._descriptors = stored_state.descriptor_limit(options)
        self._seed = 0
        self._tables: dict[int, tuple[TableMeta, Table]] = {}

    def open_tables(self, versions: VersionSet) -> None:
        """Opens the tables of `versions`. A database uses no file number twice; a recreated one has another seed."""
        files = list(versions.state.files())
        # A descriptor that made room for another cannot be had again once the file is gone.
        reopened = len(files) >= self._descriptors
        if self._seed != versions.state.seed:
            self._seed, self._tables = versions.state.seed, {}
        for f in files:
            meta, table = self._tables.get(f.number, (None, None))
            if table is None or meta != f or reopened:
                stored_state.check_table_file(versions.directory, f)
            if table is None or meta != f:
                table = stored_state.open_table(versions, f)
            self._tables[f.number] = (f, table)
            versions.add_table(table)
        self._tables = {f.number: self._tables[f.number] for f in files}


def open_for_reading(
    directory: str,
    options: Options,
    stop: Callable[[], bool] = lambda: False,
    clock: ManualClock | None = None,
) -> tuple[VersionSet, RecoveryReport]:
    """Reads a consistent state. Starts over when the writer has removed or replaced a file.

    Raises IOError with EAGAIN if the writer stays ahead, with ENOENT if there is no database any more, and ClosedError
    as soon as `stop` is true.
    """
    last, again, tries = "", 0, 0
    attempts = _Attempts(options, clock)
    began = time.monotonic()
    while True:
        if stop():
            raise ClosedError("the database is being closed")
        try:
            return _read_once(directory, options, attempts)
        except (CorruptionError, OSError) as error:
            # Another file each time: the writer is ahead. The same file every time: it is damaged.
            again = again + 1 if str(error) == last else 0
            last = str(error)
            tries += 1
            transient = isinstance(error, CorruptionError) or error.errno == errno.ENOENT
            if not transient or again == READ_ATTEMPTS - 1 or not _worth_retrying(directory, again):
                raise _final(directory, error) from error
            if again == 0 and tries >= LEAST_ATTEMPTS and time.monotonic() - began > RETRY_SECONDS:
                message = "the writer changes files faster than they can be read"
                raise IOError(errno.EAGAIN, message, directory) from error
            log.debug("reading %s again: %s", directory, error)


def _final(directory: str, error: CorruptionError | OSError) -> Error:
    """The error to raise for one that retries do not help."""
    if not stored_state.exists(directory):
        return IOError(errno.ENOENT, "there is no database", directory)
    if isinstance(error, Error):
        return error
    return IOError(error.errno, f"reading the database: {error.strerror}", error.filename or directory)


def _worth_retrying(directory: str, attempt: int) -> bool:
    """Damage stays; a writer's change looks different the next time. Without a writer one retry is enough."""
    if attempt and not is_locked(directory):
        return False
    time.sleep(0.005 * (attempt + 1))
    return True


def _read_once(directory: str, options: Options, attempts: _Attempts) -> tuple[VersionSet, RecoveryReport]:
    report = RecoveryReport()
    began = time.monotonic()
    seen = Seen.before_reading(directory)
    # Kept open until the end, or another file could get its inode.
    with stored_state.open_manifest(directory) as (file, number, path):
        state = decode_manifest(file, number, path)
        versions = stored_state.new_version_set(directory, options, state, attempts.caches, attempts.clock)
        try:
            # Tables first: opening them is fast, reading logs is not. The manifest names the oldest log, so one removed
            # meanwhile is noticed.
            attempts.open_tables(versions)
            logs = _read_logs(versions, report)
            if report.torn and _has_moved_on(directory, number, state.size):
                # What looks torn may be a value log that the writer removed after a flush.
                raise CorruptionError("the writer changed the files while they were read", path)
            if not is_named(file.fileno(), path):
                # A new database uses the same file numbers: the files read may belong to both.
                raise CorruptionError("the manifest was replaced while its files were read", path)
            versions.seen = seen.with_files(path, file.fileno(), state.size, logs)
        except BaseException:
            versions.release()
            raise
    report.seconds = time.monotonic() - began
    return versions, report


def _has_moved_on(directory: str, number: int, size: int) -> bool:
    """Whether the writer has added an edit since this manifest was read."""
    state = stored_state.read_state(directory)
    return (state.number, state.size) != (number, size)


def _read_logs(versions: VersionSet, report: RecoveryReport) -> dict[str, int]:
    """Starts the engine. Returns the end of the records of each live log by its path."""
    state = versions.state
    # Before they are read: a log that appears later changes the directory.
    live = stored_state.live_logs(versions.directory, state)
    logs, last_seq = stored_state.check_logs(versions, report)
    added: list[AddedFile] = []
    rest = replay(logs, state.seed, versions.trees, lambda piece: _write_outside(versions, piece, added))
    state.apply(VersionEdit(last_seq=last_seq, trees=stored_state.edits_of(added)))
    trees = versions.trees.values()
    # Every tree has a first memtable; without writes a small one.
    memtables = [_small(state.seed) if rest[tree.keyspace].empty else rest[tree.keyspace] for tree in trees]
    states = [
        ReadState([memtable], tree.table_levels(), state.seed) for tree, memtable in zip(trees, memtables, strict=True)
    ]
    versions.engine.start([tree.live for tree in trees], states, None, last_seq, readonly=True)
    report.tables = len(added)
    report.manifest_torn_bytes = state.torn_bytes
    ends = {log.number: log.end for log in logs}
    return {filenames.log_path(versions.directory, number): ends.get(number, HEAD_SIZE) for number in live}


def _small(seed: int) -> Memtable:
    return Memtable(seed, 4096)


def _write_outside(versions: VersionSet, piece: Piece, added: list[AddedFile]) -> int:
    """Writes a piece that does not fit into memory to unlinked tables in the temporary directory. Returns the memory
    that the open tables take.
    """
    memory = 0
    with tempfile.TemporaryDirectory(prefix="lsmkv-") as directory:
        for keyspace, memtable in piece.items():
            if memtable.empty:
                continue
            for f in Jobs(versions.trees[keyspace]).write_memtables([memtable], directory)["outputs"]:
                # Not in the descriptor cache, which would reopen the file by its name.
                table = Table(filenames.table_path(directory, f.number), f.number, versions.cache)
                table.hold(memtable.value_logs)
                versions.add_table(table)
                added.append((keyspace, 0, f))
                memory += table.memory
    return memory
