"""The state that a database's files describe, and the checks that all of it is there. Shared by both ways of opening
a database, by `verify` and by `repair`; nothing here writes.
"""

from __future__ import annotations

import logging
import os
import resource
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from lsmkv import filenames
from lsmkv.errors import CorruptionError, OptionError
from lsmkv.filenames import FileKind
from lsmkv.files import open_to_read
from lsmkv.options import Options
from lsmkv.recovery.replay import CheckedLog
from lsmkv.version.current import read_current
from lsmkv.version.edit import TreeEdit
from lsmkv.version.manifest import ManifestState, decode_manifest
from lsmkv.version.version import TableMeta
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.compaction.job import FileNumbers
from lsmkv_ext.port.wall_clock import ManualClock
from lsmkv_ext.table.table import Table
from lsmkv_ext.values.reader import ValueLog
from lsmkv_ext.wal.pointers import check_values, value_logs_of
from lsmkv_ext.wal.reader import HEAD_SIZE, check_log
from lsmkv_ext.wal.sync_watermark import read_clock

log = logging.getLogger("lsmkv")


AddedFile = tuple[int, int, TableMeta]  # with its keyspace and level


def edits_of(
    added: Iterable[AddedFile], removed: Mapping[int, Iterable[TableMeta]] | None = None
) -> tuple[TreeEdit, ...]:
    """The edits that add these files, and remove others by keyspace."""
    removed = removed or {}
    arriving: dict[int, list[tuple[int, TableMeta]]] = {keyspace: [] for keyspace in removed}
    for keyspace, level, f in added:
        arriving.setdefault(keyspace, []).append((level, f))
    return tuple(
        TreeEdit(keyspace=keyspace, removed=tuple(f.number for f in removed.get(keyspace, ())), added=tuple(files))
        for keyspace, files in arriving.items()
    )


@dataclass(frozen=True)
class TornTail:
    """The incomplete end of a log, or a whole log that follows one."""

    file: str
    offset: int
    bytes: int
    reason: str


@dataclass
class RecoveryReport:
    """What opening found and did. It is `clean` if nothing was replayed or dropped."""

    logs: int = 0
    records: int = 0
    entries: int = 0
    bytes: int = 0
    tables: int = 0  # flushed from the replayed writes
    torn: list[TornTail] = field(default_factory=list)
    salvaged: list[str] = field(default_factory=list)
    manifest_torn_bytes: int = 0
    orphans_removed: list[str] = field(default_factory=list)
    created: bool = False
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not (self.records or self.torn or self.salvaged or self.manifest_torn_bytes)


def read_state(directory: str) -> ManifestState:
    with open_manifest(directory) as (file, number, path):
        return decode_manifest(file, number, path)


@contextmanager
def open_manifest(directory: str) -> Iterator[tuple[BinaryIO, int, str]]:
    """Opens the manifest that CURRENT names; yields the file, its number and its path."""
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
    """Whether there is a database. Tables or logs without CURRENT are a damaged one."""
    if not os.path.isdir(directory):
        return False
    kinds = {kind for _, kind, _ in filenames.list_directory(directory)}
    # A manifest alone is left by a creation that was cut short before the first write.
    return not kinds.isdisjoint({FileKind.CURRENT, FileKind.TABLE, FileKind.LOG})


def refuse_irregular(directory: str, listing: Iterable[tuple[str, FileKind, int]]) -> None:
    """Raises CorruptionError for the first of them."""
    for name, _, _ in listing:
        raise CorruptionError("not a regular file", os.path.join(directory, name))


def check_table_files(directory: str, state: ManifestState) -> None:
    for f in state.files():
        check_table_file(directory, f)


def check_table_file(directory: str, f: TableMeta) -> None:
    path = filenames.table_path(directory, f.number)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        raise CorruptionError("a table of the manifest is missing", path) from None
    if not stat.S_ISREG(status.st_mode):
        raise CorruptionError("not a regular file", path)
    if status.st_size != f.size:
        raise CorruptionError(f"table has {status.st_size} bytes, the manifest says {f.size}", path)


def new_caches(options: Options) -> tuple[BlockCache, FdCache]:
    return BlockCache(options.block_bytes), FdCache(descriptor_limit(options))


def new_version_set(
    directory: str,
    options: Options,
    state: ManifestState,
    caches: tuple[BlockCache, FdCache],
    clock: ManualClock | None = None,
) -> VersionSet:
    """A version set with no table open yet. `clock` replaces the clock of the system."""
    versions = VersionSet(directory, options, state, {}, *caches, FileNumbers(state.next_file))
    versions.engine.format_2 = state.format_version > 1
    versions.engine.start_clock(latest_time(directory, state), clock)
    for tree in versions.trees.values():
        try:
            _ = tree.options
        except (OptionError, TypeError, KeyError) as error:
            path = filenames.manifest_path(directory, state.number)
            raise CorruptionError(f"options of keyspace {tree.state.name!r}: {error}", path) from error
    return versions


def latest_time(directory: str, state: ManifestState) -> int:
    """The latest time by which the writer judged an expiry, as far as it is stored."""
    path = os.path.join(directory, filenames.SYNCED)
    return max(state.clock, read_clock(path)) if state.format_version > 1 else 0


def open_tables(versions: VersionSet) -> None:
    for f in versions.state.files():
        versions.add_table(open_table(versions, f))


def open_table(versions: VersionSet, f: TableMeta) -> Table:
    """Raises CorruptionError if the table is not the one that the manifest describes."""
    table = versions.open_table(f.number, f.global_seq, f.own_log)
    check_table(table, f, filenames.table_path(versions.directory, f.number))
    return table


def check_table(table: Table, f: TableMeta, path: str) -> None:
    """Raises CorruptionError if the table is not the one that the manifest describes."""
    if _identity(table.meta) != _identity(f):
        raise CorruptionError("table does not match the manifest", path)


def _identity(f: TableMeta) -> tuple[Any, ...]:
    """What the table and the manifest say alike."""
    expiries = f.expiring, f.min_expiry, f.max_expiry, f.expiring_bytes
    return f.smallest, f.largest, f.entries, *expiries, f.value_logs, f.own_log


def live_logs(directory: str, state: ManifestState) -> list[int]:
    def is_live(item: tuple[str, FileKind, int]) -> bool:
        return item[1] is FileKind.LOG and item[2] >= state.log_number

    refuse_irregular(directory, filter(is_live, filenames.list_irregular(directory)))
    numbers = [n for _, _, n in filter(is_live, filenames.list_directory(directory))]
    if state.logged and state.log_number and state.log_number not in numbers:
        raise CorruptionError("a log of the manifest is missing", filenames.log_path(directory, state.log_number))
    return numbers


def check_logs(versions: VersionSet, report: RecoveryReport) -> tuple[list[CheckedLog], int]:
    """Returns the live logs to replay, oldest first, and the last sequence number.

    Sequence numbers run through the logs without a gap. After a log that lost its unsynced end, the later logs are
    dropped: with them the state would not be a prefix of the writes. If any of them was synced, it is corruption.
    """
    directory, state, options = versions.directory, versions.state, versions.options
    irregular = filenames.list_irregular(directory)
    refuse_irregular(directory, (item for item in irregular if item[1] is FileKind.SYNCED))
    checked: list[CheckedLog] = []
    last_seq = state.last_seq
    broken = False
    for number in live_logs(directory, state):
        path = filenames.log_path(directory, number)
        found = _check_one(path, number, options, report)
        value_logs = _check_values(path, number, found, versions, report)
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
            checked.append(CheckedLog(path, number, found["bytes"], found["known_synced"], tuple(value_logs)))
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


def _check_values(
    path: str, number: int, found: dict[str, Any], versions: VersionSet, report: RecoveryReport
) -> list[ValueLog]:
    """Returns the value logs that a log points into. Cuts `found` at the first record whose values are lost."""
    named = value_logs_of(path, number, found["bytes"]) if found["version"] > 1 and found["records"] else {}
    if not named:
        return []
    logs = list(filter(None, (versions.values.find(n, identity) for n, identity in named.items())))
    check = partial(
        check_values, path, number, found["bytes"], found["known_synced"], logs, known_values(versions.state)
    )
    try:
        found |= check()
    except CorruptionError as error:
        if versions.options.recovery != "salvage":
            raise
        report.salvaged.append(str(error))
        log.warning("salvage: %s", error)
        found |= check(salvage=True)
    return logs


def known_values(state: ManifestState) -> dict[int, int]:
    """By value log, the offset up to which tables say that its values are on disk."""
    known: dict[int, int] = {}
    for use in (use for f in state.files() for use in f.value_logs):
        known[use.number] = max(known.get(use.number, 0), use.end)
    return known


def _drop_log(path: str, found: dict[str, Any], options: Options, report: RecoveryReport) -> None:
    if found["known_synced"] > HEAD_SIZE and options.recovery != "salvage":
        raise CorruptionError("synced records follow a hole in the logs", path, 0)
    report.torn.append(TornTail(path, 0, found["bytes"], "an older log lost its end"))


def descriptor_limit(options: Options) -> int:
    """How many table descriptors to keep open: the process limit, less what the program itself needs."""
    if options.max_open_files is not None:
        return options.max_open_files
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max(8, min(soft - soft // 4, soft - 32))
