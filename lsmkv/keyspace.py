"""Keyspace: the public calls on one keyspace. A database is its default keyspace, so DB has them too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, MutableMapping
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from lsmkv import ingest, keyspace_changes, notebook
from lsmkv import stats as statistics
from lsmkv.columns import ColumnWrites
from lsmkv.compaction.filter_rebuild import FilterRebuild
from lsmkv.compaction.manual import ManualWork, Progress
from lsmkv.compaction.tree_work import TreeWork
from lsmkv.errors import KeyspaceError
from lsmkv.mapping import Key, OrderedMapping, optional_bytes
from lsmkv.options import MAX_LEVELS, Options, keyspace_options
from lsmkv.prefixed import PrefixedDB, delete_from
from lsmkv.snapshot import Snapshot
from lsmkv.transaction import Transaction, pop_first, transact
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import KeyRange
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.port.section import in_section, refuse_in_section
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.store import Store
from lsmkv_ext.updates import UpdatingStore

if TYPE_CHECKING:
    from lsmkv.db import DB
    from lsmkv.option_types import KeyspaceOptions
    from lsmkv.stats.introspect import Explain
    from lsmkv.stats.metrics import Stats
    from lsmkv.stats.tables import TableInfo

T = TypeVar("T")


class KeyspaceCalls(UpdatingStore, ColumnWrites, OrderedMapping, MutableMapping[bytes, bytes]):
    """The calls on one keyspace."""

    @property
    def _database(self) -> DB:
        raise NotImplementedError

    @property
    def _tree(self) -> StoredTree:
        self._check_open()
        tree = self._database._versions.trees.get(self.keyspace_id)
        if tree is None or tree.live is not self._live:
            raise KeyspaceError("the keyspace was dropped")
        return tree

    @property
    def _work(self) -> TreeWork:
        return self._database._scheduler.work_of(self._tree)

    def _manual(self) -> ManualWork:
        return ManualWork(self._database._scheduler, self._work)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        # By identity: comparing the contents would read two databases.
        return self is other

    @property
    def options(self) -> Options:
        """The options in force.

        >>> db.options.write_buffer_size
        67108864
        """
        return self._tree.options

    def _call(self, work: Callable[[], T]) -> T:
        """Run work that takes locks or waits. Raise Error for a finalizer inside other such work (`port/section`)."""
        refuse_in_section()
        return uninterruptible(work)

    # Reading -----------------------------------------------------------------------------------------------

    get = Store.get
    iterator = Store.iterator
    # MutableMapping has them too, in two steps each.
    pop = UpdatingStore.pop
    setdefault = UpdatingStore.setdefault

    def snapshot(self) -> Snapshot:
        """Return the current state as a read-only mapping.

        It keeps the files it reads on disk until it is closed or collected.

        >>> with db.snapshot() as before:
        ...     db.put(b"ada", b"1815")
        ...     len(before), len(db)
        (0, 1)
        """
        return Snapshot(self)

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        """Return a mapping of the keys that begin with `prefix`, without the prefix. It copies nothing.

        >>> db.prefixed_db(b"user:").put(b"ada", b"1815")
        >>> db.get(b"user:ada")
        b'1815'
        """
        return PrefixedDB(self, prefix)

    def approximate_len(self) -> int:
        """Return an estimate of the number of keys, without a scan.

        Overwritten and deleted keys count until they are compacted away.

        >>> db.put(b"ada", b"1815")
        >>> db.approximate_len()
        1
        """
        self._check_open()
        return self._call(lambda: statistics.introspect.approximate_len(self._tree))

    def approximate_size(self, start: Key | None = None, stop: Key | None = None) -> int:
        """Return the bytes that the keys in [start, stop) take up in table files. Memtables do not count.

        >>> db.put(b"ada", b"1815")
        >>> db.approximate_size(b"a", b"b")
        0
        """
        self._check_open()
        span = optional_bytes(start), optional_bytes(stop)
        return self._call(lambda: statistics.introspect.approximate_size(self._tree, *span))

    def tables(self) -> list[TableInfo]:
        """Return the tables, from L0 down. Each covers the keys from `smallest` to `largest`.

        >>> db.put(b"ada", b"1815")
        >>> db.flush()
        >>> db.tables()[0].entries
        1
        """
        return self._call(lambda: statistics.tables.tables(self._tree))

    def split_points(self, parts: int) -> list[bytes]:
        """Return at most `parts` - 1 keys that cut the keyspace into ranges of about equal size, for parallel scans.

        Keys that are not flushed yet do not count.

        >>> db.put(b"ada", b"1815")
        >>> db.flush()
        >>> db.split_points(1)
        []
        """
        return self._call(lambda: statistics.tables.split_points(self._tree, parts))

    # Writing -----------------------------------------------------------------------------------------------

    def write_batch(self, *, transaction: bool = True, sync: bool | None = None) -> WriteBatch:
        """Return a batch of writes that become visible at once.

        As a context manager it writes at the end of the block, with `transaction` only if the block did not raise.
        `sync` is passed on to the write.

        >>> with db.write_batch() as batch:
        ...     batch.put(b"ada", b"1815")
        """
        self._check_open()
        return WriteBatch(self, transaction=transaction, sync=sync)

    def transaction(self) -> Transaction:
        """Return a transaction. As a context manager it commits at the end of the block.

        >>> with db.transaction() as tx:
        ...     tx.put(b"ada", tx.get(b"ada", b"") + b"1815")
        """
        return Transaction(self)

    def transact(self, function: Callable[[Transaction], T], *, retries: int = 100) -> T:
        """Run `function` in a transaction, commit it, and return its result. After a conflict it runs again.

        Raises `ConflictError` if it conflicts once more after `retries` runs.

        >>> db.transact(lambda tx: tx.put(b"ada", b"1815"))
        """
        self._check_open()
        return transact(self.transaction, function, index(retries))

    def popitem(self) -> tuple[bytes, bytes]:
        """Delete the first key and return it with its value. Raises `KeyError` if there is none.

        >>> db.put(b"ada", b"1815")
        >>> db.popitem()
        (b'ada', b'1815')
        """
        return self._pop_first(b"")

    def _pop_first(self, prefix: bytes) -> tuple[bytes, bytes]:
        self._require_writable()
        return pop_first(self.transaction, prefix)

    def sync(self) -> None:
        """Make everything written so far survive a power cut. Without a log this is a flush.

        Raises `IOError` if the disk fails; the database is read-only from then on.

        >>> db.put(b"ada", b"1815")
        >>> db.sync()
        """
        super().sync()
        if self._database.options.wal is None:
            self.flush()

    def clear(self) -> None:
        """Delete every key, with one small write.

        >>> db.put(b"ada", b"1815")
        >>> db.clear()
        """
        delete_from(self, b"")

    def _require_writable(self) -> None:
        self._engine.require_writable()

    # Maintenance -------------------------------------------------------------------------------------------

    def flush(self, wait: bool = True) -> None:
        """Write the memtable into a table. With `wait=False` return before the table is written.

        Raises the error that keeps the table from being written.

        >>> db.put(b"ada", b"1815")
        >>> db.flush()
        """
        self._require_writable()
        self._call(lambda: self._database._scheduler.flusher.flush(wait))

    def compact_range(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        wait: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Compact [start, stop) into the last level, without tombstones and overwritten values.

        It runs as parallel subcompactions on up to `max_background_jobs` cores. `progress(done, total)` is called
        with bytes after every step, and ten times a second in between. With `wait=False` the work goes on in the
        background.

        >>> db.delete_range(b"a", b"b")
        >>> db.compact_range(b"a", b"b")
        """
        self._require_writable()
        span = KeyRange(optional_bytes(start), optional_bytes(stop), exclusive=True)
        refuse_in_section()
        manual = uninterruptible(self._manual)
        pause = manual.pause_compaction()
        work = partial(manual.compact_range, span, pause, progress)
        try:
            self.flush()
            if wait:
                work()
            else:
                self._database._scheduler.unattended.start("compact-range", work)
        except BaseException:
            pause.release()
            raise

    def rebuild_filters(self, level: int | None = None) -> int:
        """Rebuild the filter of every table with filter debt, in `level` or in all levels.

        Returns the number of tables rebuilt. Data blocks are copied as they are.

        >>> db.set_options(bits_per_key=12)
        >>> db.rebuild_filters()
        0
        """
        self._require_writable()
        level = None if level is None else index(level)
        if level is not None and not 0 <= level < MAX_LEVELS:
            raise ValueError(f"level must be from 0 to {MAX_LEVELS - 1}, not {level}")
        return self._call(lambda: FilterRebuild(self._manual(), set(self._work.filters.payable()), level).run())

    def filter_debt(self) -> dict[int, str]:
        """Return why a table's filter should be rebuilt, by file number.

        The reasons are "absent", "unwanted", "damaged", "kind", "bits", "prefix" and "seed".

        >>> db.filter_debt()
        {}
        """
        self._check_open()
        return self._call(lambda: self._work.filters.all())

    def _on_seek_debt(self) -> None:
        """Called by `iterator` when seeks have cost as much as merging L0 would."""
        if not self.readonly and not in_section():
            uninterruptible(self._merge_l0_soon)

    def _on_dead_debt(self) -> None:
        """Called by `iterator` and `cursor` when scans have passed many tombstones in tables."""
        if not self.readonly and not in_section():
            uninterruptible(self._database._scheduler.wake)

    def _merge_l0_soon(self) -> None:
        self._work.hints.mark_l0_seek_heavy()
        self._database._scheduler.wake()

    def ingest(self, paths: Iterable[str | os.PathLike[str]], *, move: bool = False) -> None:
        """Add tables made by `SSTWriter`, all of them or none, as if their entries were written now.

        With `move` the files are linked and removed, else they are copied. The value log of a table, which has its name
        and the ending `.vlog`, comes along. Raises `ValueError` if the tables overlap each other, one is empty, or one
        points into value logs of a database; `CorruptionError` if a file is damaged or a value log is missing.

        >>> with lsmkv.SSTWriter("people.sst") as writer:
        ...     writer.put(b"ada", b"1815")
        >>> db.ingest(["people.sst"])
        """
        self._require_writable()
        if isinstance(paths, str | bytes | os.PathLike):
            raise TypeError("ingest takes a list of paths, not one path")
        given = [os.fsdecode(path) for path in paths]
        refuse_in_section()
        scheduler = self._database._scheduler
        upgrade = partial(keyspace_changes.upgrade, scheduler, self._database._logs)
        uninterruptible(self._manual).call(lambda: ingest.ingest(scheduler, self._tree, given, move, upgrade))

    # Statistics --------------------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        head = notebook.paragraph(repr(self))
        return head if self.closed else head + self.stats()._repr_html_()

    def property(self, name: str) -> str | None:
        """Return a property as text, or None for an unknown name.

        `lsmkv.stats.introspect.PROPERTIES` has the names.

        >>> db.property("lsmkv.num-files")
        '0'
        """
        self._check_open()
        if not isinstance(name, str):
            raise TypeError(f"a property's name is a str, not {type(name).__name__}")
        return self._call(lambda: statistics.introspect.lookup_property(self._database._scheduler, self._tree, name))

    def stats(self) -> Stats:
        """Return the counters since the database was opened or `reset_stats` was called, and the current sizes.

        >>> db.put(b"ada", b"1815")
        >>> db.stats().writes.puts
        1
        """
        self._check_open()
        return self._call(lambda: statistics.introspect.stats(self._work, self._database._scheduler.counters))

    def explain(self, key: Key) -> Explain:
        """Trace one lookup: the files probed, their filters' answers, the blocks read, and the time each took.

        >>> db.put(b"ada", b"1815")
        >>> db.explain(b"ada").found
        True
        """
        return statistics.introspect.explain(self, as_bytes(key))


class Keyspace(KeyspaceCalls):
    """One keyspace of a database, as a mutable mapping. `db.keyspace(name)` returns it.

    It has the calls of `DB` but for those that concern the whole database, and shares its log, memory and threads. It
    keeps the database open.

    >>> users = db.keyspace("users")
    >>> users.put(b"ada", b"1815")
    >>> users.get(b"ada"), db.get(b"ada")
    (b'1815', None)
    """

    def __init__(self, database: DB, tree: StoredTree) -> None:
        self._owner = database
        self._name = tree.state.name
        self._bind(database._engine, tree.live)

    @property
    def _database(self) -> DB:
        return self._owner

    @property
    def name(self) -> str:
        """The name of the keyspace.

        >>> db.keyspace("users").name
        'users'
        """
        return self._name

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else " (read-only)" if self.readonly else ""
        return f"<lsmkv.Keyspace {self._name!r} of {self.path!r}{state}>"

    def set_options(self, **changes: Unpack[KeyspaceOptions]) -> None:
        """Change options of this keyspace and store them. They apply to all files written from now on.

        Raises `OptionError` for an unknown option, a wrong value, or an option that all keyspaces share.

        >>> db.keyspace("users").set_options(bits_per_key=12)
        >>> db.keyspace("users").options.bits_per_key
        12.0
        """
        self._require_writable()
        given = keyspace_options(changes)
        self._call(lambda: self._set_options(given))

    def _set_options(self, given: dict[str, Any]) -> None:
        # A close waits for it.
        self._manual().call(lambda: keyspace_changes.set_options(self._tree, given))
        self._database._options_changed()
