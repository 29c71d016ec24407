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
from lsmkv.compaction.jobs import Jobs, open_outputs
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
from lsmkv.recovery.replay import CheckedLog, Piece, is_empty, replay
from lsmkv.recovery.stored_state import AddedFile, RecoveryReport, edits_of
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import LATEST_FORMAT, ManifestState
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import TableMeta, Version
from lsmkv.version.version_set import Outputs, VersionSet
from lsmkv_ext.port import zstd
from lsmkv_ext.port.wall_clock import ManualClock
from lsmkv_ext.read.read_state import ReadState
from lsmkv_ext.wal.dump import LogDump
from lsmkv_ext.wal.pointers import write_values_again
from lsmkv_ext.wal.reader import HEAD_SIZE
from lsmkv_ext.wal.sync_watermark import SyncWatermark, read_watermark
from lsmkv_ext.wal.writer import LogWriter

log = logging.getLogger("lsmkv")

# Bytes of L0 that an open merges itself. Merging so few costs less than the fsyncs of the open.
MERGE_AT_OPEN = 256 << 10
DAY = 86400.0
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


def open_for_writing(
    directory: str, options: Options, clock: ManualClock | None = None
) -> tuple[VersionSet, RecoveryReport]:
    """Returns a version set with an active memtable, its log, and a manifest that names it. `clock` replaces the clock
    of the system.
    """
    report = RecoveryReport()
    began = time.monotonic()
    stored_state.refuse_irregular(directory, filenames.list_irregular(directory))
    created = not stored_state.exists(directory)
    state = _new_state() if created else stored_state.read_state(directory)
    stored_state.check_table_files(directory, state)
    versions = stored_state.new_version_set(directory, options, state, stored_state.new_caches(options), clock)
    report.created = created
    report.manifest_torn_bytes = state.torn_bytes
    try:
        if any(tree.options.needs_zstd for tree in versions.trees.values()):
            zstd.require()
        logs, last_seq = ([], 0) if created else stored_state.check_logs(versions, report)
        _warn_of_clock(versions)
        stored_state.open_tables(versions)
        # A crash may have left files with numbers that no manifest has recorded: they are not used again.
        versions.numbers.bump(max((number for _, _, number in filenames.list_directory(directory)), default=0))
        if not created:
            versions.resume_manifest()
        _start(versions, logs, last_seq, report)
    except BaseException:
        versions.close_manifest()
        versions.release()
        raise
    report.orphans_removed = remove_orphans(versions)
    if versions.engine.immutables:
        # The unlinks must be durable: a dropped log must not come back between those that stay and the new one.
        versions.sync_directory()
    report.seconds = time.monotonic() - began
    return versions, report


def _warn_of_clock(versions: VersionSet) -> None:
    """After the clock of the system went forward and back, TTLs count from a time in the future."""
    ahead = versions.engine.clock / 1000 - time.time()
    if ahead > DAY:
        days = ahead / DAY
        log.warning(
            "%s: its clock is %.1f days ahead of the system; entries expire by that clock until it is reset",
            versions.directory,
            days,
        )


def _new_state() -> ManifestState:
    return ManifestState(0, LATEST_FORMAT, seed=int.from_bytes(os.urandom(8), "little"))


def _start(versions: VersionSet, logs: list[CheckedLog], last_seq: int, report: RecoveryReport) -> None:
    """Flushes the replayed writes and starts a log. On a full disk it keeps the writes in memory and the logs."""
    if report.created:
        # CURRENT before the first log: a log without CURRENT always means that CURRENT was lost.
        versions.start(VersionEdit(logged=False, reason="create"))
    _forget_lost_log(versions)
    _write_values_again(versions, logs)
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
        number = _empty_log(versions, logs, report) or versions.numbers.next()
        edit = VersionEdit(trees=edits_of([*merged, *added], small), last_seq=last_seq, log_number=number)
        _begin(versions, number, edit, outputs)
    for files in small.values():
        for f in files:
            del versions.tables[f.number]
            versions.remove(filenames.table_name(f.number))
    return len(added)


def _start_with_logs(versions: VersionSet, logs: list[CheckedLog], last_seq: int) -> None:
    """The replayed writes become immutable memtables, as if they had been rotated out just now."""
    pieces = _replay_to_memory(versions, logs)
    for each in logs:
        _sync_again(each)
    old_logs = [LogWriter(each.path, each.number, mode="write", resume_at=each.end) for each in logs]
    number = versions.numbers.next()
    # The tables hold nothing of these logs, so their last sequence number stays.
    edit = VersionEdit(log_number=min([number, *(each.number for each in logs)]))
    with Outputs() as outputs:
        _begin(versions, number, edit, outputs, last_seq=last_seq, pieces=pieces, old_logs=old_logs)
    versions.keep_reserve()


def _begin(
    versions: VersionSet,
    number: int,
    edit: VersionEdit,
    outputs: Outputs,
    *,
    last_seq: int | None = None,
    pieces: Sequence[Piece] = (),
    old_logs: Sequence[LogWriter] = (),
) -> None:
    """Starts log `number`, makes `edit` durable and starts the engine. `pieces` become immutable memtables."""
    last_seq = edit.last_seq or 0 if last_seq is None else last_seq
    writer = _log_of(number, versions, outputs, last_seq)
    watermark = None
    if writer is not None or versions.engine.format_2:
        watermark = SyncWatermark(os.path.join(versions.directory, filenames.SYNCED))
    edit = replace(edit, logged=writer is not None, clock=_clock_to_store(versions, edit), reason="open")
    # Syncs the directory before the edit is durable, and with it the names of the log and the tables.
    versions.start(edit, outputs)
    versions.engine.start(
        [tree.live for tree in versions.trees.values()],
        [_first_state(tree, number, pieces) for tree in versions.trees.values()],
        writer,
        last_seq,
        sync_default=versions.options.sync,
        watermark=watermark,
        old_logs=old_logs,
    )


def _clock_to_store(versions: VersionSet, edit: VersionEdit) -> int | None:
    """The time that the manifest does not have yet. SYNCED has it, but is never synced. Without expiries it is of no
    use, and not worth the sync of an edit.
    """
    files = [*versions.state.files(), *(f for tree in edit.trees for _, f in tree.added)]
    latest = versions.engine.clock
    return latest if latest > versions.state.clock and any(f.expiring for f in files) else None


def _first_state(tree: StoredTree, number: int, pieces: Sequence[Piece]) -> ReadState:
    active = new_memtable(tree.versions, tree.live)
    active.number = number
    immutables = [piece[tree.keyspace] for piece in pieces if not piece[tree.keyspace].empty]
    return ReadState([active, *immutables], tree.table_levels(), tree.versions.state.seed)


def _log_of(number: int, versions: VersionSet, outputs: Outputs, last_seq: int) -> LogWriter | None:
    if number == versions.state.log_number and versions.options.wal is not None:
        path = filenames.log_path(versions.directory, number)
        return LogWriter(path, number, mode=versions.options.wal, resume_at=HEAD_SIZE)
    writer = new_log(versions, number, last_seq)
    if writer is not None:
        outputs.paths.append(writer.path)
    return writer


def _empty_log(versions: VersionSet, logs: list[CheckedLog], report: RecoveryReport) -> int:
    """The number of the log that a clean close leaves without a record, or 0. A new one would take two syncs."""
    state = versions.state
    if logs or report.torn or report.salvaged or not state.logged or versions.options.wal is None:
        return 0
    # A log of format 1 cannot take all operations of format 2.
    head = next(LogDump(filenames.log_path(versions.directory, state.log_number)))
    return state.log_number if head["version"] == state.format_version else 0


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


def _merge_small(versions: VersionSet, outputs: Outputs) -> tuple[dict[int, Sequence[TableMeta]], list[AddedFile]]:
    """Merges the small tables of L0. Returns them by keyspace, and the tables that replace them."""
    merged: dict[int, Sequence[TableMeta]] = {}
    added: list[AddedFile] = []
    for tree in versions.trees.values():
        small = small_tables(tree.current, tree.options.l0_compaction_trigger)
        if not small:
            continue
        try:
            added += _open_outputs(tree, Jobs(tree).merge_l0(small)["outputs"], outputs)
            merged[tree.keyspace] = small
        except SyncError:
            raise
        except (Error, OSError, MemoryError) as error:
            # The merge only saves time: a damaged table or a full disk must not refuse the open.
            log.warning("%s: the small tables of L0 stay as they are: %s", versions.directory, error)
    return merged, added


def _open_outputs(tree: StoredTree, files: Sequence[TableMeta], outputs: Outputs) -> list[AddedFile]:
    for table in open_outputs(tree.versions, files, outputs):
        tree.versions.add_table(table)
    return [(tree.keyspace, 0, f) for f in files]


def _replay_to_tables(versions: VersionSet, logs: list[CheckedLog], outputs: Outputs) -> list[AddedFile]:
    added: list[AddedFile] = []

    def write(piece: Piece) -> int:
        before = len(added)
        for keyspace, memtable in piece.items():
            if not memtable.empty:
                tree = versions.trees[keyspace]
                # A memtable of nothing but empty ranges has no output.
                added.extend(_open_outputs(tree, Jobs(tree).write_memtables([memtable])["outputs"], outputs))
        return sum(versions.tables[f.number].memory for _, _, f in added[before:])

    write(replay(logs, versions.state.seed, versions.trees, write))
    return added


def _replay_to_memory(versions: VersionSet, logs: list[CheckedLog]) -> list[Piece]:
    """The replayed writes, newest first. Raises IOError if they take more memory than the logs and the memtables that
    a database may have: only hostile logs do.
    """
    options = versions.options
    limit = sum(each.end for each in logs) + options.max_write_buffers * options.write_buffer_size
    pieces: list[Piece] = []

    def keep(piece: Piece) -> int:
        pieces.insert(0, piece)
        if sum(m.used_bytes for each in pieces for m in each.values()) > limit:
            raise IOError(errno.ENOSPC, "no room on the disk to replay the logs", versions.directory)
        return 0

    rest = replay(logs, versions.state.seed, versions.trees, keep, by_log=True)
    if not is_empty(rest):
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


def _write_values_again(versions: VersionSet, logs: list[CheckedLog]) -> None:
    """Makes durable the values that are not known to be, before a table names them."""
    known = stored_state.known_values(versions.state)
    for each in logs:
        if each.value_logs:
            write_values_again(each.path, each.number, each.end, each.known_synced, list(each.value_logs), known)


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
    tables = {f.number for f in versions.state.files()}
    logs = {log.number for log in versions.engine.logs}
    values = {use.number for f in versions.state.files() for use in f.value_logs} | versions.values.live()
    removed = []
    for name, kind, number in filenames.list_directory(versions.directory):
        orphan = (
            kind is FileKind.TEMPORARY
            or (kind is FileKind.TABLE and number not in tables)
            or (kind is FileKind.LOG and number not in logs)
            or (kind is FileKind.VALUE_LOG and number not in values)
            or (kind is FileKind.MANIFEST and versions.manifest is not None and number != versions.manifest.number)
        )
        if orphan:
            versions.remove(name)
            removed.append(name)
    return removed
