"""Opens a database for a reader: one consistent state, read beside a writer that may change the files at any time.

A reader holds no lock and writes nothing into the folder.
"""

from __future__ import annotations

import errno
import logging
import tempfile
import time

from lsmkv import filenames
from lsmkv.compaction.jobs import Jobs
from lsmkv.errors import CorruptionError
from lsmkv.files import is_named
from lsmkv.lockfile import is_locked
from lsmkv.options import Options
from lsmkv.recovery import stored_state
from lsmkv.recovery.replay import replay
from lsmkv.recovery.stored_state import AddedFile, RecoveryReport
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import ManifestState, decode_manifest
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.table.table import Table

log = logging.getLogger("lsmkv")

# How often in a row the same file may fail before it counts as damaged.
READ_ATTEMPTS = 20


def open_for_reading(directory: str, options: Options) -> tuple[VersionSet, RecoveryReport]:
    """Reads a consistent state. Starts over when the writer has removed or replaced a file."""
    last, again = "", 0
    while True:
        try:
            return _read_once(directory, options)
        except (CorruptionError, OSError) as error:
            # Another file each time: the writer is ahead. The same file every time: it is damaged.
            again = again + 1 if str(error) == last else 0
            last = str(error)
            transient = isinstance(error, CorruptionError) or error.errno == errno.ENOENT
            if not transient or again == READ_ATTEMPTS - 1 or not _worth_retrying(directory, again):
                raise
            log.debug("reading %s again: %s", directory, error)


def _worth_retrying(directory: str, attempt: int) -> bool:
    """Damage stays; a writer's change looks different the next time. Without a writer one retry is enough."""
    if attempt and not is_locked(directory):
        return False
    time.sleep(0.005 * (attempt + 1))
    return True


def _read_once(directory: str, options: Options) -> tuple[VersionSet, RecoveryReport]:
    report = RecoveryReport()
    began = time.monotonic()
    # Kept open until the end, or another file could get its inode.
    with stored_state.open_manifest(directory) as (file, number, path):
        versions = _read_files(directory, decode_manifest(file, number, path), options, report)
        if not is_named(file.fileno(), path):
            # A new database uses the same file numbers: the files read may belong to both.
            raise CorruptionError("the manifest was replaced while its files were read", path)
    report.seconds = time.monotonic() - began
    return versions, report


def _read_files(directory: str, state: ManifestState, options: Options, report: RecoveryReport) -> VersionSet:
    # Logs first: a memtable flushed meanwhile is then found twice, never missed.
    logs, last_seq = stored_state.check_logs(directory, state, options, report)
    versions = stored_state.new_version_set(directory, options, state)
    added: list[AddedFile] = []
    rest = replay(logs, state.seed, lambda piece: _write_outside(versions, piece, added))
    stored_state.check_table_files(directory, state)
    stored_state.open_tables(versions)
    state.version = VersionEdit(added=tuple(added)).apply(state.version)
    state.last_seq = last_seq
    # The engine always has a first memtable; without writes a small one.
    memtable = Memtable(state.seed, 4096) if rest.empty else rest
    versions.engine.start(versions.table_levels(), [memtable], None, last_seq, readonly=True)
    report.tables = len(added)
    report.manifest_torn_bytes = state.torn_bytes
    return versions


def _write_outside(versions: VersionSet, piece: Memtable, added: list[AddedFile]) -> int:
    """Writes a piece that does not fit into memory to an unlinked table in the temporary folder. Returns the memory
    that the open table takes.
    """
    memory = 0
    with tempfile.TemporaryDirectory(prefix="lsmkv-") as folder:
        for f in Jobs(versions).write_memtables([piece], folder)["outputs"]:
            # Not in the descriptor cache, which would reopen the file by its name.
            table = Table(filenames.table_path(folder, f.number), f.number, versions.cache)
            versions.add_table(table)
            added.append((0, f))
            memory += table.memory
    return memory
