"""Opening a database: which state do its files describe, and is all of it there?

Nothing is written before everything was read and checked, and nothing is deleted before the new state is
durable: an open
that is refused leaves the files as they were.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from lsmkv import filenames
from lsmkv.compaction.jobs import Jobs
from lsmkv.errors import CorruptionError, IOError
from lsmkv.filenames import Kind
from lsmkv.lockfile import is_locked
from lsmkv.log_supply import new_log, new_memtable
from lsmkv.options import Options
from lsmkv.recovery.replay import CheckedLog, replay
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import (
    ManifestState,
    decode_manifest,
    is_named,
    open_to_read,
    read_current,
    replace_file,
    sync_directory,
)
from lsmkv.version.version import FileMeta
from lsmkv.version.version_set import Outputs, VersionSet, file_meta
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.compaction.job import FileNumbers
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.table.table import Table
from lsmkv_ext.wal.log import check_log
from lsmkv_ext.wal.sync_watermark import SyncWatermark, read_watermark

log = logging.getLogger("lsmkv")

# How often a reader beside a live writer starts over because files changed under it.
READ_ATTEMPTS = 20
# A log whose known-synced offset is this has no synced record.
LOG_HEAD_BYTES = 4096


AddedFile = tuple[int, FileMeta]  # with its level


@dataclass(frozen=True)
class TornTail:
    """Bytes at the end of a log that never became a whole record, or whole logs behind such a place."""

    file: str
    offset: int
    bytes: int
    reason: str


@dataclass
class RecoveryReport:
    """What opening found. `clean`: nothing had to be replayed and nothing was dropped."""

    logs: int = 0
    records: int = 0
    entries: int = 0
    bytes: int = 0
    tables: int = 0  # that the replayed writes became
    torn: list[TornTail] = field(default_factory=list)
    salvaged: list[str] = field(default_factory=list)
    manifest_torn_bytes: int = 0
    orphans_removed: list[str] = field(default_factory=list)
    created: bool = False
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.records or self.torn or self.salvaged or self.manifest_torn_bytes)


# Reading --------------------------------------------------------------------------------------------------


def read_state(directory: str) -> ManifestState:
    with _open_manifest(directory) as (file, number, path):
        return decode_manifest(file, number, path)


@contextmanager
def _open_manifest(directory: str) -> Iterator[tuple[BinaryIO, int, str]]:
    """The manifest that CURRENT names, its number and its path."""
    try:
        number = read_current(directory)
    except FileNotFoundError:
        raise CorruptionError("CURRENT is missing", os.path.join(directory, filenames.CURRENT)) from None
    path = filenames.manifest_path(directory, number)
    try:
        file = open_to_read(path)
    except FileNotFoundError:
        raise CorruptionError("the manifest that CURRENT names is missing", path) from None
    with file:
        yield file, number, path


def exists(directory: str) -> bool:
    """Whether there is a database. Table or log files without CURRENT are one too: a damaged one."""
    if not os.path.isdir(directory):
        return False
    kinds = {kind for _, kind, _ in filenames.list_directory(directory)}
    # A manifest alone is a database whose creation was cut short before it could take a write.
    return not kinds.isdisjoint({Kind.CURRENT, Kind.TABLE, Kind.LOG})


def check_table_files(directory: str, state: ManifestState) -> None:
    for f in state.version.files():
        path = filenames.table_path(directory, f.number)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            raise CorruptionError("a table of the manifest is missing", path) from None
        if status.st_size != f.size:
            raise CorruptionError(f"table has {status.st_size} bytes, the manifest says {f.size}", path)


def open_tables(
    directory: str, state: ManifestState, options: Options, cache: BlockCache, fds: FdCache
) -> dict[int, Table]:
    tables = {}
    for f in state.version.files():
        path = filenames.table_path(directory, f.number)
        table = Table(path, f.number, cache, fds, global_seq=f.global_seq, charge=options.cache_index_and_filter_blocks)
        check_table(table, f, path)
        tables[f.number] = table
    return tables


def check_table(table: Table, f: FileMeta, path: str) -> None:
    """The table is the one the manifest means, not another one under its name."""
    found = (table.smallest, table.largest, table.n_entries)
    if found != (f.smallest, f.largest, f.entries):
        raise CorruptionError("table does not match the manifest", path)


def live_logs(directory: str, state: ManifestState) -> list[int]:
    numbers = [n for _, kind, n in filenames.list_directory(directory) if kind is Kind.LOG and n >= state.log_number]
    if state.logged and state.log_number and state.log_number not in numbers:
        raise CorruptionError("a log of the manifest is missing", filenames.log_path(directory, state.log_number))
    return numbers


def check_logs(
    directory: str, state: ManifestState, options: Options, report: RecoveryReport
) -> tuple[list[CheckedLog], int]:
    """The live logs that count, oldest first, and the last sequence number.

    Logs are a chain without gaps in sequence numbers. Where one lost its unsynced end, what follows would not
    be a prefix of the writes, so it is dropped; had any of that been synced, it is corruption.
    """
    checked: list[CheckedLog] = []
    last_seq = state.last_seq
    broken = False
    for number in live_logs(directory, state):
        path = filenames.log_path(directory, number)
        found = _check_one(path, number, options, report)
        if found["records"] == 0 and found["torn_reason"] is None:
            continue
        before = max(found["previous_last_seq"], found["first_seq"] - 1)
        broken = broken or before > last_seq
        if broken:
            _drop_log(path, found, options, report)
            continue
        report.logs += 1
        report.records += found["records"]
        report.entries += found["entries"]
        report.bytes += found["bytes"]
        if found["torn_reason"] is not None:
            report.torn.append(TornTail(path, found["torn_offset"], found["torn_bytes"], found["torn_reason"]))
        last_seq = max(last_seq, found["last_seq"])
        if found["records"]:
            checked.append(CheckedLog(path, number, found["bytes"]))
    return checked, last_seq


def _check_one(path: str, number: int, options: Options, report: RecoveryReport) -> dict[str, Any]:
    try:
        return check_log(path, number)
    except CorruptionError as error:
        if options.recovery != "salvage":
            raise
        report.salvaged.append(str(error))
        log.warning("salvage: %s", error)
        return check_log(path, number, salvage=True)


def _drop_log(path: str, found: dict[str, Any], options: Options, report: RecoveryReport) -> None:
    if found["known_synced"] > LOG_HEAD_BYTES and options.recovery != "salvage":
        raise CorruptionError("synced records follow a hole in the logs", path, 0)
    report.torn.append(TornTail(path, 0, found["bytes"], "an older log lost its end"))


def file_limit(options: Options) -> int:
    """Table descriptors kept open: what the process may have, less what the program itself needs."""
    if options.max_open_files is not None:
        return options.max_open_files
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max(8, min(soft - soft // 4, soft - 32))


# Opening for reading --------------------------------------------------------------------------------------


def open_for_reading(directory: str, options: Options, report: RecoveryReport) -> VersionSet:
    """A consistent state beside a writer that may change files at any time: start over where one vanished."""
    last, again = "", 0
    while True:
        try:
            return _read_once(directory, options, report)
        except (CorruptionError, OSError) as error:
            # Another file each time: the writer is ahead of us. The same one again and again: it is damaged.
            again = again + 1 if str(error) == last else 0
            last = str(error)
            gone = isinstance(error, CorruptionError) or error.errno == errno.ENOENT
            if not gone or again == READ_ATTEMPTS - 1 or not _worth_another_look(directory, again):
                raise
            log.debug("reading %s again: %s", directory, error)


def _worth_another_look(directory: str, attempt: int) -> bool:
    """Damage stays; what a writer did under our eyes looks different the next time. Without a
    writer two looks do.
    """
    if attempt and not is_locked(directory):
        return False
    time.sleep(0.005 * (attempt + 1))
    return True


def _read_once(directory: str, options: Options, report: RecoveryReport) -> VersionSet:
    report.__init__()  # type: ignore[misc]
    began = time.monotonic()
    # Open until the end: no other file gets its inode meanwhile.
    with _open_manifest(directory) as (file, number, path):
        versions = _read_files(directory, decode_manifest(file, number, path), options, report)
        if not is_named(file.fileno(), path):
            # A database made anew uses the same file numbers: what was read may be of both.
            raise CorruptionError("the manifest was replaced while its files were read", path)
    report.seconds = time.monotonic() - began
    return versions


def _read_files(directory: str, state: ManifestState, options: Options, report: RecoveryReport) -> VersionSet:
    cache = BlockCache(options.block_bytes)
    fds = FdCache(file_limit(options))
    # Logs first: what a flush turned into a table meanwhile is then in both, never in neither.
    logs, last_seq = check_logs(directory, state, options, report)
    versions = VersionSet(directory, options, state, {}, cache, fds, FileNumbers(state.next_file))
    added: list[AddedFile] = []
    rest = replay(logs, state.seed, lambda piece: _write_outside(versions, piece, added))
    versions.immutables = [] if rest.empty else [rest]
    check_table_files(directory, state)
    versions.tables.update(open_tables(directory, state, options, cache, fds))
    state.version = VersionEdit(added=tuple(added)).apply(state.version)
    report.tables = len(added)
    state.last_seq = last_seq
    report.manifest_torn_bytes = state.torn_bytes
    return versions


def _write_outside(versions: VersionSet, piece: Memtable, added: list[AddedFile]) -> int:
    """What does not fit into memory becomes a table without a name: a reader leaves the database's folder alone, and
    nothing behind. Returns the memory that it takes.
    """
    memory = 0
    with tempfile.TemporaryDirectory(prefix="lsmkv-") as folder:
        for output in Jobs(versions).write_memtables([piece], folder)["outputs"]:
            f = file_meta(output, 0)
            # Outside the pool of descriptors, which would want to open it again by its name.
            table = Table(filenames.table_path(folder, f.number), f.number, versions.cache)
            versions.add_table(table)
            added.append((0, f))
            memory += table.memory
    return memory


# Opening for writing --------------------------------------------------------------------------------------


def create_directory(directory: str) -> None:
    if os.path.isdir(directory):
        return
    try:
        os.makedirs(directory, 0o700)
    except FileExistsError:
        raise IOError(errno.ENOTDIR, "the path is not a folder", directory) from None
    sync_directory(os.path.dirname(os.path.abspath(directory)))


def create_state(seed: int) -> ManifestState:
    return ManifestState(0, seed=seed)


def open_for_writing(directory: str, options: Options, report: RecoveryReport) -> VersionSet:
    """The caller holds the lock. The result has an active memtable with its log, and a manifest
    that says so.
    """
    began = time.monotonic()
    created = not exists(directory)
    state = create_state(int.from_bytes(os.urandom(8), "little")) if created else read_state(directory)
    check_table_files(directory, state)
    logs, last_seq = ([], 0) if created else check_logs(directory, state, options, report)
    cache = BlockCache(options.block_bytes)
    fds = FdCache(file_limit(options))
    tables = open_tables(directory, state, options, cache, fds)
    numbers = FileNumbers(state.next_file)
    # A crash may have left files behind that no manifest counted: their numbers are not used again.
    numbers.bump(max((number for _, _, number in filenames.list_directory(directory)), default=0))
    versions = VersionSet(directory, options, state, tables, cache, fds, numbers)
    report.created = created
    report.manifest_torn_bytes = state.torn_bytes
    report.tables = _begin(versions, logs, last_seq, created)
    report.orphans_removed = remove_orphans(versions)
    report.seconds = time.monotonic() - began
    return versions


def _begin(versions: VersionSet, logs: list[CheckedLog], last_seq: int, created: bool) -> int:
    """Replayed writes go into tables at once: then the old logs are done with, torn ends and dropped ones
    included. One edit makes all these tables count, so a crash among them leaves the logs in charge. Returns
    how many tables it took.
    """
    directory = versions.directory
    if created:
        # CURRENT before the first log: a log without CURRENT always means that CURRENT was lost.
        versions.start(VersionEdit(logged=False, reason="create"))
    _forget_lost_log(versions)
    with Outputs() as outputs:
        added: list[AddedFile] = []

        def write(piece: Memtable) -> int:
            memory = 0
            # No output at all where it holds nothing but empty ranges.
            for output in Jobs(versions).write_memtables([piece])["outputs"]:
                outputs.paths.append(filenames.table_path(directory, output["number"]))
                f = file_meta(output, 0)
                table = versions.open_table(f)
                versions.add_table(table)
                added.append((0, f))
                memory += table.memory
            return memory

        rest = replay(logs, versions.state.seed, write)
        if not rest.empty:
            write(rest)
        active = new_memtable(versions, versions.numbers.next())
        writer = new_log(versions, active.number, last_seq)
        if writer is not None:
            outputs.paths.append(filenames.log_path(directory, active.number))
        sync_directory(directory)
        versions.start(
            VersionEdit(
                added=tuple(added),
                last_seq=last_seq,
                log_number=active.number,
                logged=writer is not None,
                reason="open",
            ),
            outputs,
        )
    if writer is not None:
        versions.watermark = SyncWatermark(os.path.join(directory, filenames.SYNCED))
    versions.rotate(active, writer)
    write_options(versions)
    return len(added)


def _forget_lost_log(versions: VersionSet) -> None:
    """SYNCED may be about a log of a database that was here before, or about one that was lost and repair gave up: its
    number will come again, and the log that gets it must not be held to what was once synced.
    """
    path = os.path.join(versions.directory, filenames.SYNCED)
    watermark = read_watermark(path)
    if watermark is not None and watermark[0] >= versions.numbers.peek:
        os.unlink(path)  # before the folder is synced, and so before that log can hold anything


def empty_memtable(versions: VersionSet) -> Memtable:
    """For a reader that found no log: the engine always has a first memtable."""
    return Memtable(versions.state.seed, 4096)


def write_options(versions: VersionSet) -> None:
    replace_file(versions.directory, filenames.OPTIONS, versions.options.encode())


def remove_orphans(versions: VersionSet) -> list[str]:
    """Files of ours that the durable state does not know: leftovers of a crash."""
    keep = {f.number for f in versions.current.files()}
    removed = []
    for name, kind, number in filenames.list_directory(versions.directory):
        orphan = (
            kind is Kind.TEMPORARY
            or (kind is Kind.TABLE and number not in keep)
            or (kind is Kind.LOG and number not in versions.logs)
            or (kind is Kind.MANIFEST and versions.manifest is not None and number != versions.manifest.number)
        )
        if orphan:
            versions.remove(name)
            removed.append(name)
    return removed
