"""Repair: builds a database that opens from everything that can be read.

With a readable manifest the tree keeps its shape, and damaged tables are replaced by their readable blocks. Without
one, all tables and logs are merged by sequence number into a new tree. Damaged files are moved aside, never deleted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from lsmkv import filenames
from lsmkv.checkpoint import NO_LINKS
from lsmkv.errors import CorruptionError
from lsmkv.filenames import FileKind
from lsmkv.files import io_errors, sync_directory
from lsmkv.lockfile import DatabaseLock
from lsmkv.options import Options
from lsmkv.recovery import stored_state
from lsmkv.recovery.replay import CheckedLog, replay
from lsmkv.version.current import read_current, refuse_foreign
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import ManifestState, read_manifest
from lsmkv.version.version import TableMeta, Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.table.sst_writer import SSTWriter
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table
from lsmkv_ext.wal.reader import check_log


@dataclass
class RepairReport:
    """The result of `repair`: what it found, and did if `applied`.

    >>> lsmkv.open("people.db").close()
    >>> lsmkv.repair("people.db", apply=False).losses
    []
    """

    path: str
    applied: bool
    needed: bool = False
    rebuilt: bool = False  # the manifest was lost: the tree was rebuilt from sequence numbers
    actions: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)  # what could not be read
    set_aside: list[str] = field(default_factory=list)
    tables: int = 0
    entries: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, for JSON.

        >>> lsmkv.open("people.db").close()
        >>> lsmkv.repair("people.db", apply=False).to_dict()["losses"]
        []
        """
        return asdict(self)


def repair(path: str | os.PathLike[str], *, apply: bool = True) -> RepairReport:
    """Make the database in `path` open again. With `apply=False` only report what would be done.

    Returns a `RepairReport`. Raises `LockError` if the database is open.

    >>> lsmkv.open("people.db").close()
    >>> lsmkv.repair("people.db", apply=False).rebuilt
    False
    """
    directory = filenames.directory_path(path)
    report = RepairReport(directory, apply)
    if not stored_state.exists(directory):
        report.losses.append("there is no database")
        return report
    with io_errors("repair", directory):
        refuse_foreign(directory)
        lock = DatabaseLock(directory)
        try:
            _Repair(directory, report).run()
        finally:
            lock.release()
    return report


class _Ages:
    """Sequence numbers for ingested tables, whose own only the manifest has. Sees all tables, lowest number first.

    Tables with lower numbers were made before an ingest, so the next sequence number after theirs is not above the
    one that was lost: a write after the ingest always wins.
    """

    def __init__(self) -> None:
        self._last_seq = 0
        self._ingested: list[tuple[int, Table]] = []  # with their sequence numbers

    def global_seq(self, table: Table) -> int:
        """0 for a table that was not ingested, or that has sequence numbers of its own."""
        if table.max_seq or table.properties["number"] == table.number or table.smallest is None:
            self._last_seq = max(self._last_seq, table.max_seq)
            return 0
        # Tables of one ingest share a sequence number and do not overlap.
        older = [seq for seq, other in self._ingested if other.meta.range.overlaps(table.meta.range)]
        seq = max([self._last_seq, *older]) + 1
        self._ingested.append((seq, table))
        return seq


class _Repair:
    def __init__(self, directory: str, report: RepairReport) -> None:
        self.directory = directory
        self.report = report
        self.apply = report.applied
        listing = filenames.list_directory(directory)
        self.table_numbers = [number for _, kind, number in listing if kind is FileKind.TABLE]
        self.log_numbers = [number for _, kind, number in listing if kind is FileKind.LOG]
        self.manifests = [number for _, kind, number in listing if kind is FileKind.MANIFEST]
        self.irregular = [name for name, _, _ in filenames.list_irregular(directory)]
        self.numbers = FileNumbers(max((number for _, _, number in listing), default=0) + 1)
        self.cache = BlockCache(8 << 20)
        self.fds = FdCache(64)

    def run(self) -> None:
        for name in self.irregular:
            self._lose(f"{name} is not a regular file")
            self._set_aside(name)
        state = self._readable_state()
        if state is None:
            self._rebuild()
        else:
            self._mend(state)

    # With a manifest ----------------------------------------------------------------------------------------

    def _readable_state(self) -> ManifestState | None:
        """The state of the manifest that CURRENT names, or of the newest one without CURRENT. None if it is damaged."""
        try:
            number = read_current(self.directory)
        except (CorruptionError, FileNotFoundError) as error:
            self._act(f"CURRENT cannot be used: {error}")
            if not self.manifests:
                return None
            number = self.manifests[-1]
        try:
            return read_manifest(self.directory, number)
        except (CorruptionError, FileNotFoundError) as error:
            self._act(f"the manifest cannot be used: {error}")
            # It may still help a person; the next open would remove it.
            self._set_aside(filenames.manifest_name(number))
            return None

    def _mend(self, state: ManifestState) -> None:
        levels: list[list[TableMeta]] = [[] for _ in state.version.levels]
        for level, files in enumerate(state.version.levels):
            for f in files:
                kept = self._keep_or_salvage(f, level)
                if kept is not None:
                    levels[level].append(kept)
        logs = [number for number in self.log_numbers if number >= state.log_number]
        if state.logged and state.log_number and state.log_number not in logs:
            self._lose(f"{filenames.log_name(state.log_number)} is missing")
            self.report.needed = True
        checked, last_seq = self._check_logs(logs, state.last_seq)
        if not self.report.needed:
            return
        levels[0] += self._replay(checked, state.seed)
        version = Version(tuple(map(tuple, levels)))
        self._finish(version, state.seed, max(last_seq, *(f.max_seq for f in version.files()), 0))

    def _keep_or_salvage(self, f: TableMeta, level: int) -> TableMeta | None:
        name = filenames.table_name(f.number)
        try:
            table = Table(filenames.table_path(self.directory, f.number), f.number, None, None, global_seq=f.global_seq)
            stored_state.check_table(table, f, name)
        except (CorruptionError, OSError) as error:
            self._lose(f"{name} cannot be read: {error}")
            self._set_aside(name)
            return None
        if not verify_table(table, deep=False):
            self.report.tables += 1
            self.report.entries += table.n_entries
            return f
        saved = self._salvage(table, name)
        return None if saved is None else saved.meta

    # Without a manifest --------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Merge all readable entries; the largest sequence number of a key wins."""
        self.report.rebuilt = True
        self._act("the tree is rebuilt from all readable tables and logs")
        tables = list(self._readable_tables())
        seeds = Counter(table.seed for table in tables)
        seed = seeds.most_common(1)[0][0] if seeds else int.from_bytes(os.urandom(8), "little")
        checked, last_seq = self._check_logs(self.log_numbers, 0)
        for output in self._replay(checked, seed):
            path = filenames.table_path(self.directory, output.number)
            tables.append(Table(path, output.number, self.cache, self.fds))
        version = Version()
        if self.apply and tables:
            outcome = self._job(tables, seed, newest_by_seq=True, below=[], output_level=1).run()
            version = version.with_levels({1: outcome["outputs"]})
        self._finish(version, seed, max([last_seq, *(table.max_seq for table in tables)]))

    def _readable_tables(self) -> Iterator[Table]:
        ages = _Ages()
        for number in self.table_numbers:
            name = filenames.table_name(number)
            path = filenames.table_path(self.directory, number)
            try:
                table = Table(path, number, self.cache, self.fds)
                seq = ages.global_seq(table)
                if seq:
                    table = Table(path, number, self.cache, self.fds, global_seq=seq)
            except (CorruptionError, OSError) as error:
                self._lose(f"{name} cannot be read: {error}")
                self._set_aside(name)
                continue
            if verify_table(table, deep=False):
                saved = self._salvage(table, name)
                if saved is not None:
                    yield saved
            else:
                self.report.tables += 1
                self.report.entries += table.n_entries
                yield table

    # Shared ----------------------------------------------------------------------------------------------

    def _salvage(self, table: Table, name: str) -> Table | None:
        """Copies the readable blocks of `table` into a new table."""
        number = self.numbers.next()
        target = filenames.table_path(self.directory, number)
        self._act(f"{name}: its readable blocks are copied to {filenames.table_name(number)}")
        writer = SSTWriter(target, seed=table.seed, number=number) if self.apply else None
        saved = 0
        for key, value, seq in self._readable_entries(table, name):
            saved += 1
            if writer is not None:
                if value is None:
                    writer.delete(key, seq=seq)
                else:
                    writer.put(key, value, seq=seq)
        self.report.entries += saved
        self._set_aside(name)
        if writer is None:
            return None
        for start, stop, seq in table.range_tombstones:
            writer.delete_range(start, stop, seq=seq)
        if not saved and not table.range_tombstones:
            writer.abort()
            return None
        writer.finish()
        self.report.tables += 1
        return Table(target, number, self.cache, self.fds, global_seq=table.global_seq)

    def _readable_entries(self, table: Table, name: str) -> Iterator[tuple[bytes, bytes | None, int]]:
        previous: bytes | None = None
        for separator in table.separators():
            start = None if previous is None else previous + b"\0"
            previous = separator
            try:
                block = list(table.entries(start, separator + b"\0", mode="compaction"))
            except CorruptionError as error:
                self._lose(f"{name}: {error}")
                continue
            yield from block

    def _check_logs(self, numbers: list[int], last_seq: int) -> tuple[list[CheckedLog], int]:
        """Find the readable records of the logs. Return the logs that hold any, and the last sequence number."""
        checked: list[CheckedLog] = []
        for number in numbers:
            name = filenames.log_name(number)
            path = os.path.join(self.directory, name)
            try:
                found = check_log(path, number)
            except CorruptionError as error:
                self._lose(f"{name}: {error}")
                self._set_aside(name)
                found = check_log(path, number, salvage=True)
            self.report.entries += found["entries"]
            last_seq = max(last_seq, found["last_seq"])
            if found["records"]:
                checked.append(CheckedLog(path, number, found["bytes"]))
        return checked, last_seq

    def _replay(self, logs: list[CheckedLog], seed: int) -> list[TableMeta]:
        """Write the logs into tables. Return their metas, oldest first."""
        outputs: list[TableMeta] = []
        if not self.apply:
            return outputs

        def write(piece: Memtable) -> int:
            outputs.extend(self._job([piece], seed, single_output=True, below=None).run()["outputs"])
            return 0  # they are opened later

        rest = replay(logs, seed, write)
        if not rest.empty:
            write(rest)
        return outputs

    def _job(self, inputs: list[Any], seed: int, **options: Any) -> Any:
        return Job(inputs, directory=self.directory, numbers=self.numbers, seed=seed, **options)

    def _finish(self, version: Version, seed: int, last_seq: int) -> None:
        self._act("a new manifest is written")
        if not self.apply:
            return
        self._keep_damaged()
        sync_directory(self.directory)
        state = ManifestState(0, seed=seed)
        versions = VersionSet(self.directory, Options(), state, {}, self.cache, self.fds, self.numbers)
        added = tuple((level, f) for level, files in enumerate(version.levels) for f in files)
        log_number = self.numbers.next()
        versions.start(
            VersionEdit(
                seed=seed,
                added=added,
                last_seq=last_seq,
                log_number=log_number,
                logged=False,
                reason="repair",
            )
        )
        versions.close()
        self._move_damaged()

    def _keep_damaged(self) -> None:
        """Links each damaged file into `lost/`: an open removes files that the new manifest does not name."""
        if not self.report.set_aside:
            return
        lost = os.path.join(self.directory, filenames.LOST)
        with suppress(FileExistsError):
            os.mkdir(lost, 0o700)
        for name in self.report.set_aside:
            target = os.path.join(lost, name)
            if name in self.irregular:
                self._move_irregular(name, target)
                continue
            with suppress(FileNotFoundError):
                os.unlink(target)  # from an earlier repair, or from this one, killed halfway
            try:
                os.link(os.path.join(self.directory, name), target, follow_symlinks=False)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
        sync_directory(lost)

    def _move_irregular(self, name: str, target: str) -> None:
        """Move it at once: it may have the name of a file that is written next."""
        while os.path.lexists(target):
            target += "~"
        os.rename(os.path.join(self.directory, name), target)

    def _move_damaged(self) -> None:
        """Called once the new manifest no longer names these files."""
        if not self.report.set_aside:
            return
        lost = os.path.join(self.directory, filenames.LOST)
        for name in self.report.set_aside:
            if name in self.irregular:
                continue
            if os.path.lexists(os.path.join(lost, name)):
                os.unlink(os.path.join(self.directory, name))
            else:
                os.rename(os.path.join(self.directory, name), os.path.join(lost, name))
        sync_directory(lost)
        sync_directory(self.directory)

    def _act(self, what: str) -> None:
        self.report.needed = True
        self.report.actions.append(what)

    def _lose(self, what: str) -> None:
        self.report.needed = True
        self.report.losses.append(what)

    def _set_aside(self, name: str) -> None:
        self.report.needed = True
        if name not in self.report.set_aside and os.path.lexists(os.path.join(self.directory, name)):
            self.report.set_aside.append(name)
            self.report.actions.append(f"{name} is moved to {filenames.LOST}/")
