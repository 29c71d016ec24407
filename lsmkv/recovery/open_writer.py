"""Opens a database for the writer, creating it if it is missing. The caller holds the lock file.

Nothing is written before everything is read and checked, and nothing is deleted before the new state is durable: a
refused open leaves the files as they were.
"""

from __future__ import annotations

import errno
import os
import time

from lsmkv import filenames
from lsmkv.compaction.jobs import Jobs
from lsmkv.errors import IOError
from lsmkv.filenames import Kind
from lsmkv.files import replace_file, sync_directory
from lsmkv.log_supply import new_log, new_memtable
from lsmkv.options import Options
from lsmkv.recovery import stored_state
from lsmkv.recovery.replay import CheckedLog, replay
from lsmkv.recovery.stored_state import AddedFile, RecoveryReport
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import ManifestState
from lsmkv.version.version_set import Outputs, VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.wal.sync_watermark import SyncWatermark, read_watermark


def create_directory(directory: str) -> None:
    if os.path.isdir(directory):
        return
    try:
        os.makedirs(directory, 0o700)
    except FileExistsError:
        raise IOError(errno.ENOTDIR, "the path is not a folder", directory) from None
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
    # A crash may have left files that no manifest counted: their numbers are not used again.
    versions.numbers.bump(max((number for _, _, number in filenames.list_directory(directory)), default=0))
    report.created = created
    report.manifest_torn_bytes = state.torn_bytes
    report.tables = _start(versions, logs, last_seq, created)
    report.orphans_removed = remove_orphans(versions)
    report.seconds = time.monotonic() - began
    return versions, report


def _new_state() -> ManifestState:
    return ManifestState(0, seed=int.from_bytes(os.urandom(8), "little"))


def _start(versions: VersionSet, logs: list[CheckedLog], last_seq: int, created: bool) -> int:
    """Flushes the replayed writes and starts a log and a manifest. Returns the number of tables flushed.

    One edit adds all tables and drops all old logs, torn ends included: after a crash before it, the logs still count.
    """
    directory = versions.directory
    if created:
        # CURRENT before the first log: a log without CURRENT always means that CURRENT was lost.
        versions.start(VersionEdit(logged=False, reason="create"))
    _forget_lost_log(versions)
    with Outputs() as outputs:
        added = _replay_to_tables(versions, logs, outputs)
        active = new_memtable(versions, versions.numbers.next())
        writer = new_log(versions, active.number, last_seq)
        if writer is not None:
            outputs.paths.append(filenames.log_path(directory, active.number))
        sync_directory(directory)
        edit = VersionEdit(
            added=tuple(added),
            last_seq=last_seq,
            log_number=active.number,
            logged=writer is not None,
            reason="open",
        )
        versions.start(edit, outputs)
    if writer is not None:
        versions.watermark = SyncWatermark(os.path.join(directory, filenames.SYNCED))
    versions.rotate(active, writer)
    write_options(versions)
    return len(added)


def _replay_to_tables(versions: VersionSet, logs: list[CheckedLog], outputs: Outputs) -> list[AddedFile]:
    added: list[AddedFile] = []

    def write(piece: Memtable) -> int:
        memory = 0
        # A piece of nothing but empty ranges has no output.
        for f in Jobs(versions).write_memtables([piece])["outputs"]:
            outputs.paths.append(filenames.table_path(versions.directory, f.number))
            table = versions.open_table(f.number)
            versions.add_table(table)
            added.append((0, f))
            memory += table.memory
        return memory

    rest = replay(logs, versions.state.seed, write)
    if not rest.empty:
        write(rest)
    return added


def _forget_lost_log(versions: VersionSet) -> None:
    """Removes a watermark of a log that is gone, left by an earlier database or a repair. Its number will be used
    again, and the new log must not be held to what was once synced.
    """
    path = os.path.join(versions.directory, filenames.SYNCED)
    watermark = read_watermark(path)
    if watermark is not None and watermark[0] >= versions.numbers.peek:
        os.unlink(path)  # before the folder is synced, and so before that log can hold anything


def write_options(versions: VersionSet) -> None:
    replace_file(versions.directory, filenames.OPTIONS, versions.options.encode())


def remove_orphans(versions: VersionSet) -> list[str]:
    """Removes files of ours that the durable state does not name: leftovers of a crash. Returns their names."""
    tables = {f.number for f in versions.current.files()}
    removed = []
    for name, kind, number in filenames.list_directory(versions.directory):
        orphan = (
            kind is Kind.TEMPORARY
            or (kind is Kind.TABLE and number not in tables)
            or (kind is Kind.LOG and number not in versions.logs)
            or (kind is Kind.MANIFEST and versions.manifest is not None and number != versions.manifest.number)
        )
        if orphan:
            versions.remove(name)
            removed.append(name)
    return removed
