"""Opens a database for the writer, creating it if it is missing. The caller holds the lock file.

Nothing is written before everything is read and checked, and nothing is deleted before the new state is durable: a
refused open leaves the files as they were.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace

from lsmkv import filenames
from lsmkv.compaction.jobs import Jobs
from lsmkv.errors import CorruptionError, Error, IOError, SyncError
from lsmkv.filenames import FileKind
from lsmkv.files import (
    io_errors,
    is_no_room,
    open_own,
    open_to_read,
    replace_file,
    sync_directory,
    sync_file,
    write_all,
)
from lsmkv.log_supply import new_log, new_memtable
from lsmkv.options import Options
from lsmkv.recovery import stored_state
from lsmkv.recovery.replay import CheckedLog, replay
from lsmkv.recovery.stored_state import AddedFile, RecoveryReport
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import ManifestState
from lsmkv.version.version import TableMeta, Version
from lsmkv.version.version_set import Outputs, VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.wal.reader import HEAD_SIZE
from lsmkv_ext.wal.sync_watermark import SyncWatermark, read_watermark
from lsmkv_ext.wal.writer import LogWriter

log = logging.getLogger("lsmkv")

# Bytes of L0 that an open merges itself. Merging so few costs less than the fsyncs of the open.
MERGE_AT_OPEN = 256 << 10
# Bytes of a log that `_sync_again` copies at a time.
REWRITE_BYTES = 1 << 20


def create_directory(directory: str) -> None:
    if os.path.isdir(directory):
        return
    try:
        os.makedirs(directory, 0o700)
    except FileExistsError:
        raise IOError(errno.ENOTDIR, "the path is not a directory", directory) from None
    sync_directory(os.path.dirname(os.path.abspath(directory)))


def open_for_writing(directory: str, options: Options) -> tuple[VersionSet, RecoveryReport]:
    """Returns a version set with an active memtable, its log, and a manifest that names it."""
    report = RecoveryReport()
    began = time.monotonic()
    stored_state.refuse_irregular(directory, filenames.list_irregular(directory))
    created = not stored_state.exists(directory)
    state = _new_state() if created else stored_state.read_state(directory)
    stored_state.check_table_files(directory, state)
    logs, last_seq = ([], 0) if created else stored_state.check_logs(directory, state, options, report)
    versions = stored_state.new_version_set(directory, options, state, stored_state.new_caches(options))
    stored_state.open_tables(versions)
    # A crash may have left files with numbers that no manifest has recorded: they are not used again.
    versions.numbers.bump(max((number for _, _, number in filenames.list_directory(directory)), default=0))
    report.created = created
    report.manifest_torn_bytes = state.torn_bytes
    try:
        if not created:
            versions.resume_manifest()
        _start(versions, logs, last_seq, report)
    except BaseException:
        versions.close_manifest()
        raise
    report.orphans_removed = remove_orphans(versions)
    if versions.engine.immutables:
        # The unlinks must be durable: a dropped log must not come back between those that stay and the new one.
        versions.sync_directory()
    report.seconds = time.monotonic() - began
    return versions, report


def _new_state() -> ManifestState:
    return ManifestState(0, seed=int.from_bytes(os.urandom(8), "little"))


def _start(versions: VersionSet, logs: list[CheckedLog], last_seq: int, report: RecoveryReport) -> None:
    """Flushes the replayed writes and starts a log. On a full disk it keeps the writes in memory and the logs."""
    if report.created:
        # CURRENT before the first log: a log without CURRENT always means that CURRENT was lost.
        versions.start(VersionEdit(logged=False, reason="create"))
    _forget_lost_log(versions)
    tables = dict(versions.tables)
    try:
        report.tables = _start_with_tables(versions, logs, last_seq, report)
    except OSError as error:
        # A log that needed a salvage must not stay: the next open would refuse it.
        if not is_no_room(error) or report.salvaged:
            raise
        log.warning("%s: opened with its logs as they are: %s", versions.directory, error)
        versions.tables = tables
        versions.reserve.release()
        _start_with_logs(versions, logs, last_seq)
    _store_options(versions)


def _start_with_tables(versions: VersionSet, logs: list[CheckedLog], last_seq: int, report: RecoveryReport) -> int:
    """Writes the replayed writes into tables. Returns their number.

    One edit adds all tables and drops all old logs, torn tails included. After a crash before the edit, the next open
    replays the logs again.
    """
    with Outputs() as outputs:
        small, merged = _merge_small(versions, outputs)
        added = _replay_to_tables(versions, logs, outputs)
        active = new_memtable(versions, _empty_log(versions, logs, report) or versions.numbers.next())
        edit = VersionEdit(
            removed=tuple(f.number for f in small), added=(*merged, *added), last_seq=last_seq, log_number=active.number
        )
        _begin(versions, active, edit, outputs)
    for f in small:
        del versions.tables[f.number]
        versions.remove(filenames.table_name(f.number))
    return len(added)


def _start_with_logs(versions: VersionSet, logs: list[CheckedLog], last_seq: int) -> None:
    """The replayed writes become immutable memtables, as if they had been rotated out just now."""
    memtables = _replay_to_memory(versions, logs)
    for each in logs:
        _sync_again(each)
    old_logs = [LogWriter(each.path, each.number, mode="write", resume_at=each.end) for each in logs]
    active = new_memtable(versions, versions.numbers.next())
    # Without `last_seq`: it is that of the tables, and they hold nothing of these logs.
    edit = VersionEdit(log_number=min(m.number for m in [active, *memtables]))
    with Outputs() as outputs:
        _begin(versions, active, edit, outputs, last_seq=last_seq, immutables=memtables, old_logs=old_logs)
    versions.keep_reserve()


def _begin(
    versions: VersionSet,
    active: Memtable,
    edit: VersionEdit,
    outputs: Outputs,
    *,
    last_seq: int | None = None,
    immutables: Sequence[Memtable] = (),
    old_logs: Sequence[LogWriter] = (),
) -> None:
    """Starts the log of `active`, makes `edit` durable and starts the engine."""
    last_seq = edit.last_seq or 0 if last_seq is None else last_seq
    writer = _log_of(active, versions, outputs, last_seq)
    watermark = None
    if writer is not None:
        watermark = SyncWatermark(os.path.join(versions.directory, filenames.SYNCED))
    # Syncs the directory before the edit is durable, and with it the names of the log and the tables.
    versions.start(replace(edit, logged=writer is not None, reason="open"), outputs)
    versions.engine.start(
        versions.table_levels(),
        [active, *immutables],
        writer,
        last_seq,
        sync_default=versions.options.sync,
        watermark=watermark,
        old_logs=old_logs,
    )


def _log_of(active: Memtable, versions: VersionSet, outputs: Outputs, last_seq: int) -> LogWriter | None:
    if active.number == versions.state.log_number and versions.options.wal is not None:
        path = filenames.log_path(versions.directory, active.number)
        return LogWriter(path, active.number, mode=versions.options.wal, resume_at=HEAD_SIZE)
    writer = new_log(versions, active.number, last_seq)
    if writer is not None:
        outputs.paths.append(writer.path)
    return writer


def _empty_log(versions: VersionSet, logs: list[CheckedLog], report: RecoveryReport) -> int:
    """The number of the empty log that a clean close left, or 0. It is used again: a new log would take two syncs."""
    state = versions.state
    found_something = logs or report.torn or report.salvaged
    return 0 if found_something or not state.logged or versions.options.wal is None else state.log_number


def small_tables(version: Version, trigger: int) -> tuple[TableMeta, ...]:
    """The newest tables of L0, if L0 has reached its trigger, that an open merges into one.

    Otherwise sessions that are too short for a compaction would add a table each, and every open reads all of them.
    """
    l0 = version.levels[0]
    if len(l0) < trigger:
        return ()
    count = size = 0
    while count < len(l0) and size + l0[count].size <= MERGE_AT_OPEN:
        size += l0[count].size
        count += 1
    return l0[:count] if count > 1 else ()


def _merge_small(versions: VersionSet, outputs: Outputs) -> tuple[Sequence[TableMeta], list[AddedFile]]:
    """Merges the small tables of L0. Returns them, and the table that replaces them."""
    small = small_tables(versions.current, versions.options.l0_compaction_trigger)
    if not small:
        return (), []
    try:
        return small, _open_outputs(versions, Jobs(versions).merge_l0(small)["outputs"], outputs)
    except SyncError:
        raise
    except (Error, OSError, MemoryError) as error:
        # The merge only saves time: a damaged table or a full disk must not refuse the open.
        log.warning("%s: the small tables of L0 stay as they are: %s", versions.directory, error)
        return (), []


def _open_outputs(versions: VersionSet, files: Sequence[TableMeta], outputs: Outputs) -> list[AddedFile]:
    outputs.paths += [filenames.table_path(versions.directory, f.number) for f in files]
    for table in [versions.open_table(f.number) for f in files]:
        versions.add_table(table)
    return [(0, f) for f in files]


def _replay_to_tables(versions: VersionSet, logs: list[CheckedLog], outputs: Outputs) -> list[AddedFile]:
    added: list[AddedFile] = []

    def write(piece: Memtable) -> int:
        # A piece with nothing but empty range deletes has no output.
        files = _open_outputs(versions, Jobs(versions).write_memtables([piece])["outputs"], outputs)
        added.extend(files)
        return sum(versions.tables[f.number].memory for _, f in files)

    rest = replay(logs, versions.state.seed, write)
    if not rest.empty:
        write(rest)
    return added


def _replay_to_memory(versions: VersionSet, logs: list[CheckedLog]) -> list[Memtable]:
    """The replayed writes, newest first. Raises IOError if they take more memory than their logs and
    `max_write_buffers` memtables together: only hostile logs do.
    """
    options = versions.options
    limit = sum(each.end for each in logs) + options.max_write_buffers * options.write_buffer_size
    pieces: list[Memtable] = []

    def keep(piece: Memtable) -> int:
        pieces.insert(0, piece)
        if sum(m.used_bytes for m in pieces) > limit:
            raise IOError(errno.ENOSPC, "no room on the disk to replay the logs", versions.directory)
        return 0

    rest = replay(logs, versions.state.seed, keep)
    if not rest.empty:
        keep(rest)
    return pieces


def _sync_again(checked: CheckedLog) -> None:
    """Makes durable a log that stays. Writes it again first: after an fsync that failed earlier, the kernel may have
    marked its pages clean.
    """
    fd = open_own(checked.path, os.O_RDWR)
    try:
        with io_errors("log", checked.path):
            at = 0
            while at < checked.end:
                data = os.pread(fd, min(REWRITE_BYTES, checked.end - at), at)
                if not data:
                    raise CorruptionError("the log became shorter while it was read", checked.path, at)
                write_all(fd, data, checked.path)
                at += len(data)
        sync_file(fd, checked.path)
    finally:
        os.close(fd)


def _forget_lost_log(versions: VersionSet) -> None:
    """Removes a watermark of a log that is gone, left by an earlier database or a repair. The number of that log will
    be used again, and the watermark must not count for the new log.
    """
    path = os.path.join(versions.directory, filenames.SYNCED)
    watermark = read_watermark(path)
    if watermark is not None and watermark[0] >= versions.numbers.peek:
        os.unlink(path)  # before the directory is synced, and so before the new log has a record


def write_options(versions: VersionSet) -> None:
    replace_file(versions.directory, filenames.OPTIONS, versions.options.encode())


def _store_options(versions: VersionSet) -> None:
    if _options_are_stored(versions):
        return
    try:
        write_options(versions)
    except OSError as error:
        if not is_no_room(error):
            raise
        log.warning("%s: the options are not stored: %s", versions.directory, error)


def _options_are_stored(versions: VersionSet) -> bool:
    options = versions.options.encode()
    try:
        with open_to_read(os.path.join(versions.directory, filenames.OPTIONS)) as file:
            return file.read(len(options) + 1) == options
    except FileNotFoundError:
        return False


def remove_orphans(versions: VersionSet) -> list[str]:
    """Removes files of ours that the durable state does not name: leftovers of a crash. Returns their names."""
    tables = {f.number for f in versions.current.files()}
    logs = {log.number for log in versions.engine.logs}
    removed = []
    for name, kind, number in filenames.list_directory(versions.directory):
        orphan = (
            kind is FileKind.TEMPORARY
            or (kind is FileKind.TABLE and number not in tables)
            or (kind is FileKind.LOG and number not in logs)
            or (kind is FileKind.MANIFEST and versions.manifest is not None and number != versions.manifest.number)
        )
        if orphan:
            versions.remove(name)
            removed.append(name)
    return removed
