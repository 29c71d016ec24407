"""Repair: builds a database that opens from everything that can be read.

With a readable manifest the trees keep their shape, and damaged tables are replaced by their readable blocks. Without
one, all tables and logs are merged by sequence number into a new tree for each keyspace. Damaged files
are moved aside, never deleted.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from lsmkv import filenames
from lsmkv.checkpoint import NO_LINKS
from lsmkv.errors import CorruptionError
from lsmkv.filenames import FileKind
from lsmkv.files import io_errors, sync_directory
from lsmkv.lockfile import DatabaseLock
from lsmkv.options import Options
from lsmkv.recovery import stored_state
from lsmkv.recovery.found_keyspaces import FoundKeyspaces
from lsmkv.recovery.replay import MOST_UNKNOWN, CheckedLog, Piece, replay
from lsmkv.version.current import read_current, refuse_foreign
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import LATEST_FORMAT, ManifestState, TreeState, read_manifest
from lsmkv.version.value_logs import ingested_log
from lsmkv.version.version import TableMeta, Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.table.sst_writer import SSTWriter
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table
from lsmkv_ext.values.reader import ValueLog
from lsmkv_ext.wal.dump import LogDump
from lsmkv_ext.wal.pointers import check_values, value_logs_of
from lsmkv_ext.wal.reader import check_log, log_keyspaces


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

    Returns a `RepairReport`. Raises `LockError` if the database is open, `FormatError` if a newer release wrote it.

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
        self.newer_log = False  # a log of format 2 was found

    def run(self) -> None:
        self._refuse_newer()
        for name in self.irregular:
            self._lose(f"{name} is not a regular file")
            self._set_aside(name)
        state = self._readable_state()
        if state is None:
            self._rebuild()
        else:
            self._mend(state)

    def _refuse_newer(self) -> None:
        """Raises FormatError if a newer release wrote a file: this one cannot tell whether it is needed."""
        for number in self.manifests:
            with suppress(CorruptionError, OSError):
                read_manifest(self.directory, number)
        for number in self.log_numbers:
            with suppress(CorruptionError, OSError):
                next(LogDump(filenames.log_path(self.directory, number)))
        for number in self.table_numbers:
            with suppress(CorruptionError, OSError):
                Table(filenames.table_path(self.directory, number), number)

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
        trees = {keyspace: self._mend_tree(keyspace, tree) for keyspace, tree in state.trees.items()}
        logs = [number for number in self.log_numbers if number >= state.log_number]
        if state.logged and state.log_number and state.log_number not in logs:
            self._lose(f"{filenames.log_name(state.log_number)} is missing")
            self.report.needed = True
        checked, last_seq = self._check_logs(logs, state.last_seq)
        found = FoundKeyspaces({keyspace: tree.name for keyspace, tree in trees.items()})
        checked = self._add_logged(found, checked)
        if not self.report.needed:
            return
        outputs = self._replay(checked, state.seed, found)
        for keyspace, name in found.names.items():
            tree = trees.get(keyspace, TreeState(name))
            l0 = [*tree.version.levels[0], *outputs.get(keyspace, ())]
            trees[keyspace] = replace(tree, version=tree.version.with_levels({0: l0}))
        version = LATEST_FORMAT if len(trees) > 1 or self.newer_log else state.format_version
        next_id = max(state.next_keyspace, found.next_id)
        self._finish(replace(state, format_version=version, trees=trees, next_keyspace=next_id, last_seq=last_seq))

    def _mend_tree(self, keyspace: int, tree: TreeState) -> TreeState:
        label = keyspace, tree.name.encode()
        levels = {
            level: [kept for f in files if (kept := self._keep_or_salvage(f, label)) is not None]
            for level, files in enumerate(tree.version.levels)
        }
        return replace(tree, version=Version().with_levels(levels))

    def _keep_or_salvage(self, f: TableMeta, label: tuple[int, bytes]) -> TableMeta | None:
        name = filenames.table_name(f.number)
        try:
            path = filenames.table_path(self.directory, f.number)
            table = Table(path, f.number, None, None, global_seq=f.global_seq, own_log=f.own_log)
            stored_state.check_table(table, f, name)
        except (CorruptionError, OSError) as error:
            self._lose(f"{name} cannot be read: {error}")
            self._set_aside(name)
            return None
        if not verify_table(table, deep=False) and self._hold_values(table, name):
            self.report.tables += 1
            self.report.entries += table.n_entries
            return f
        saved = self._salvage(table, name)
        if saved is None:
            return None
        return self._relabel(saved, label) if label[0] else saved.meta

    def _relabel(self, table: Table, label: tuple[int, bytes]) -> TableMeta:
        """Copies a table into one that states its keyspace."""
        (meta,) = self._job([table], table.seed, single_output=True, below=None, keyspace=label).run()["outputs"]
        os.unlink(table.path)
        return cast("TableMeta", meta)

    # Without a manifest --------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Merge all readable entries of each keyspace; the largest sequence number of a key wins."""
        self.report.rebuilt = True
        self._act("the tree is rebuilt from all readable tables and logs")
        readable = list(self._readable_tables())
        checked, last_seq = self._check_logs(self.log_numbers, 0)
        found = FoundKeyspaces()
        found.add_tables(origin for origin, _ in readable)
        checked = self._add_logged(found, checked)
        tables = self._by_keyspace(found, readable)
        seeds = Counter(table.seed for _, table in readable if table is not None)
        seed = seeds.most_common(1)[0][0] if seeds else int.from_bytes(os.urandom(8), "little")
        for keyspace, outputs in self._replay(checked, seed, found).items():
            tables[keyspace] += map(self._open, outputs)
        last_seq = max([last_seq, *(table.max_seq for each in tables.values() for table in each)])
        trees = {
            keyspace: self._merge(keyspace, name, tables[keyspace], seed) for keyspace, name in found.names.items()
        }
        newer = len(trees) > 1 or self.newer_log or any(origin.properties["version"] > 1 for origin, _ in readable)
        version = LATEST_FORMAT if newer else 1
        self._finish(ManifestState(0, version, trees, seed, last_seq=last_seq, next_keyspace=found.next_id))

    def _open(self, f: TableMeta) -> Table:
        table = Table(filenames.table_path(self.directory, f.number), f.number, self.cache, self.fds)
        self._hold_values(table, filenames.table_name(f.number))
        return table

    def _by_keyspace(
        self, found: FoundKeyspaces, readable: list[tuple[Table, Table | None]]
    ) -> defaultdict[int, list[Table]]:
        tables: defaultdict[int, list[Table]] = defaultdict(list)
        for origin, table in readable:
            keyspace = found.of(origin)
            if keyspace is None:
                name = filenames.table_name(origin.number)
                self._lose(f"{name}: a later keyspace has the name {origin.keyspace!r} too")
                self._set_aside(name)
            elif table is not None:
                tables[keyspace].append(table)
        return tables

    def _merge(self, keyspace: int, name: str, tables: list[Table], seed: int) -> TreeState:
        if not self.apply or not tables:
            return TreeState(name)
        label = keyspace, name.encode()
        # A compaction that copies values leaves two tables with equal sequence numbers: the newer file wins.
        tables = sorted(tables, key=lambda table: table.number, reverse=True)
        outcome = self._job(tables, seed, newest_by_seq=True, below=[], output_level=1, keyspace=label).run()
        return TreeState(name, version=Version().with_levels({1: outcome["outputs"]}))

    def _readable_tables(self) -> Iterator[tuple[Table, Table | None]]:
        """Each table, and the one that has its readable entries."""
        ages = _Ages()
        for number in self.table_numbers:
            name = filenames.table_name(number)
            path = filenames.table_path(self.directory, number)
            try:
                table = Table(path, number, self.cache, self.fds)
                seq, own_log = ages.global_seq(table), ingested_log(table)
                if seq or own_log:
                    table = Table(path, number, self.cache, self.fds, global_seq=seq, own_log=own_log)
            except (CorruptionError, OSError) as error:
                self._lose(f"{name} cannot be read: {error}")
                self._set_aside(name)
                continue
            if verify_table(table, deep=False) or not self._hold_values(table, name):
                yield table, self._salvage(table, name)
            else:
                self.report.tables += 1
                self.report.entries += table.n_entries
                yield table, table

    # Shared ----------------------------------------------------------------------------------------------

    def _hold_values(self, table: Table, name: str) -> bool:
        """Whether the value logs of a table are there, and reach to their last values. Damage in a value surfaces when
        it is read.
        """
        sound = True
        for use in table.meta.value_logs:
            try:
                short = table.value_log(use.number).size < use.end
            except (CorruptionError, OSError) as error:
                self._lose(f"{name}: {error}")
                sound = False
            else:
                if short:
                    self._lose(f"{name}: {filenames.value_log_name(use.number)} is shorter than it says")
                    sound = False
        return sound

    def _lost_operations(self, log: CheckedLog, count: int) -> None:
        self._lose(f"{filenames.log_name(log.number)}: {count} operations whose values are missing")

    def _salvage(self, table: Table, name: str) -> Table | None:
        """Copies the readable blocks of `table` into a new table."""
        number = self.numbers.next()
        target = filenames.table_path(self.directory, number)
        self._act(f"{name}: its readable blocks are copied to {filenames.table_name(number)}")
        writer = SSTWriter(target, seed=table.seed, number=number) if self.apply else None
        saved = 0
        for key, value, seq, expiry in self._readable_entries(table, name):
            saved += 1
            if writer is not None:
                if value is None:
                    writer.delete(key, seq=seq)
                else:
                    writer.put(key, value, seq=seq, expire_at=expiry / 1000 if expiry else None)
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

    def _readable_entries(self, table: Table, name: str) -> Iterator[tuple[bytes, bytes | None, int, int]]:
        previous: bytes | None = None
        for separator in table.separators():
            start = None if previous is None else previous + b"\0"
            previous = separator
            try:
                block: list[Any] = list(table.entries(start, separator + b"\0", mode="compaction", expiries=True))
            except CorruptionError as error:
                self._lose(f"{name}: {error}")
                if table.meta.value_logs:
                    yield from self._one_by_one(table, start, separator + b"\0")
                continue
            yield from block

    def _one_by_one(
        self, table: Table, start: bytes | None, stop: bytes
    ) -> Iterator[tuple[bytes, bytes | None, int, int]]:
        """The entries of a block of which some values cannot be read; nothing if the block itself cannot."""
        with suppress(CorruptionError):
            for key in list(table.keys(start, stop)):
                with suppress(CorruptionError):
                    found = table.find(key)
                    if found is not None:
                        yield key, *found

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
            self.newer_log = self.newer_log or found["version"] > 1
            last_seq = max(last_seq, found["last_seq"])
            if found["records"]:
                value_logs = self._logged_values(path, number, found)
                checked.append(CheckedLog(path, number, found["bytes"], value_logs=value_logs))
        return checked, last_seq

    def _logged_values(self, path: str, number: int, found: dict[str, Any]) -> tuple[ValueLog, ...]:
        """The value logs that a log points into, as far as they can be read."""
        logs = []
        for each, identity in value_logs_of(path, number, found["bytes"]).items() if found["version"] > 1 else ():
            value_log = filenames.value_log_path(self.directory, each)
            with suppress(CorruptionError, OSError):
                logs.append(ValueLog(value_log, each, self.fds, identity=identity))
        missing = check_values(path, number, found["bytes"], 0, logs, {}, salvage=True).get("torn_reason")
        if missing is not None:
            self._lose(f"{os.path.basename(path)}: {missing}")
        return tuple(logs)

    def _add_logged(self, found: FoundKeyspaces, logs: list[CheckedLog]) -> list[CheckedLog]:
        """Adds the keyspaces that the logs have operations of. Returns the logs that can be replayed."""
        known = len(found.names) + len(found.shadowed)
        usable = []
        for log in logs:
            name = filenames.log_name(log.number)
            try:
                keyspaces = log_keyspaces(log.path, log.number, log.end, known + MOST_UNKNOWN)
            except CorruptionError as error:
                self._lose(f"{name}: {error}")
                self._set_aside(name)
                continue
            usable.append(log)
            for keyspace in found.add_logged(keyspaces):
                self._act(f"{name}: keyspace {keyspace} is unknown and becomes {found.names[keyspace]!r}")
            for keyspace in sorted(keyspaces & found.shadowed.keys()):
                other = found.names[found.shadowed[keyspace]]
                self._lose(f"{name}: operations of keyspace {keyspace}; a later one has its name {other!r}")
                self._set_aside(name)
        return usable

    def _replay(self, logs: list[CheckedLog], seed: int, found: FoundKeyspaces) -> dict[int, list[TableMeta]]:
        """Write the logs into tables. Return their metas by keyspace, oldest first."""
        outputs: dict[int, list[TableMeta]] = {keyspace: [] for keyspace in found.names}
        if not self.apply:
            return outputs

        def write(piece: Piece) -> int:
            for keyspace, name in found.names.items():
                if not piece[keyspace].empty:
                    label = keyspace, name.encode()
                    job = self._job([piece[keyspace]], seed, single_output=True, below=None, keyspace=label)
                    outputs[keyspace] += job.run()["outputs"]
            return 0  # they are opened later

        write(replay(logs, seed, {*found.names, *found.shadowed}, write, lost=self._lost_operations))
        return outputs

    def _job(self, inputs: list[Any], seed: int, **options: Any) -> Any:
        return Job(inputs, directory=self.directory, numbers=self.numbers, seed=seed, **options)

    def _finish(self, state: ManifestState) -> None:
        """Writes a manifest with the trees of `state`."""
        self._act("a new manifest is written")
        if not self.apply:
            return
        self._keep_damaged()
        sync_directory(self.directory)
        last_seq = max([state.last_seq, *(f.max_seq for f in state.files())])
        versions = VersionSet(self.directory, Options(), state, {}, self.cache, self.fds, self.numbers)
        versions.start(VersionEdit(last_seq=last_seq, log_number=self.numbers.next(), logged=False, reason="repair"))
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
        if what not in self.report.losses:  # a table may be read more than once
            self.report.losses.append(what)

    def _set_aside(self, name: str) -> None:
        self.report.needed = True
        if name not in self.report.set_aside and os.path.lexists(os.path.join(self.directory, name)):
            self.report.set_aside.append(name)
            self.report.actions.append(f"{name} is moved to {filenames.LOST}/")
