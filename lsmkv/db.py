"""DB: the public calls of a database, and the wiring of the engine to the control plane.

The engine (`lsmkv_ext.engine`) owns reads and writes, the version set the tree on disk, the scheduler the background
work. A DB owns all of them, the lock file, and the order in which they start and stop.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from operator import index
from typing import Any, TypeVar

from lsmkv import checkpoint, filenames, ingest, lifecycle
from lsmkv.compaction.counters import Counters
from lsmkv.compaction.filter_rebuild import FilterDebt, FilterRebuild
from lsmkv.compaction.hints import ReadHints
from lsmkv.compaction.jobs import Jobs
from lsmkv.compaction.manual import ManualWork, Progress
from lsmkv.compaction.memory import share_memory
from lsmkv.compaction.scheduler import Scheduler
from lsmkv.errors import Error
from lsmkv.lockfile import DatabaseLock
from lsmkv.log_supply import LogSupply
from lsmkv.mapping import Key, OrderedMapping, optional_bytes
from lsmkv.options import MAX_LEVELS, Options
from lsmkv.prefixed import PrefixedDB, delete_from
from lsmkv.recovery import open_reader, open_writer
from lsmkv.recovery.stored_state import RecoveryReport
from lsmkv.snapshot import Snapshot
from lsmkv.stats import introspect
from lsmkv.stats.export import write_stats
from lsmkv.stats.metrics import Stats
from lsmkv.version.version import KeyRange
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.port.finalization import RLock, is_finalizing, require_running
from lsmkv_ext.port.section import in_section, refuse_in_section
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.store import Store

log = logging.getLogger("lsmkv")

T = TypeVar("T")


class DB(Store, OrderedMapping, MutableMapping[bytes, bytes]):
    """An open database: a mapping from bytes to bytes in key order. `lsmkv.open` returns it.

    Any number of threads may use it. `close` it, or use it as a context manager.

    >>> db[b"ada"] = b"1815"
    >>> list(db.items())
    [(b'ada', b'1815')]
    """

    def __init__(self, versions: VersionSet, report: RecoveryReport, lock: DatabaseLock | None) -> None:
        self._lock = lock
        self._pid = os.getpid()
        self._closing = RLock()
        self._bind(versions.engine)
        self._close_waits = False
        self._attach(versions, report)
        self._tune(versions.options)
        if lock is not None:
            try:
                self._scheduler.start()
            except BaseException:
                # Threads that have started must end before the lock is released.
                self._shut(flush=False)
                raise
        lifecycle.register(self)

    def _attach(self, versions: VersionSet, report: RecoveryReport) -> None:
        """Create the objects behind the engine. They refer to each other and to the engine, never to this object:
        otherwise their threads would keep an abandoned database alive.
        """
        engine = versions.engine
        self._versions = versions
        self.recovery_report = report
        self._jobs: Jobs = Jobs(versions) if self._lock is None else Jobs(versions, engine.counters)
        self._logs: LogSupply = LogSupply(versions)
        self._filters = FilterDebt(versions, self._jobs)
        self._read_hints = ReadHints(versions, self._filters)
        export = partial(_export, versions, self._jobs)
        self._scheduler: Scheduler = Scheduler(versions, self._jobs, self._logs, self._read_hints.read, export)
        self._manual = ManualWork(self._scheduler)
        if self._lock is not None:
            # Interrupts are deferred: the scheduler must learn of a refusal, and the reserve has a lock.
            engine.on_full = self._scheduler.flusher.make_room
            engine.on_refused = partial(uninterruptible, self._scheduler.wake, defer_interrupt=True)
            engine.release_reserve = partial(uninterruptible, versions.reserve.release, defer_interrupt=True)
            engine.refill_reserve = partial(uninterruptible, versions.reserve.refill, defer_interrupt=True)

    def _call(self, work: Callable[[], T]) -> T:
        """Run work that takes locks or waits. Raise Error for a finalizer inside other such work (`port/section`)."""
        refuse_in_section()
        return uninterruptible(work)

    # Identity ----------------------------------------------------------------------------------------------

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        # By identity: comparing the contents would read two databases.
        return self is other

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else " (read-only)" if self.readonly else ""
        return f"<lsmkv.DB {self.path!r}{state}>"

    def __enter__(self) -> DB:
        self._check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def options(self) -> Options:
        """The options in force.

        >>> db.options.write_buffer_size
        67108864
        """
        return self._versions.options

    # Reading -----------------------------------------------------------------------------------------------

    get = Store.get
    iterator = Store.iterator

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
        return self._call(lambda: introspect.approximate_len(self._versions))

    def approximate_size(self, start: Key | None = None, stop: Key | None = None) -> int:
        """Return the bytes that the keys in [start, stop) take up in table files. Memtables do not count.

        >>> db.put(b"ada", b"1815")
        >>> db.approximate_size(b"a", b"b")
        0
        """
        self._check_open()
        span = optional_bytes(start), optional_bytes(stop)
        return self._call(lambda: introspect.approximate_size(self._versions, *span))

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

    def sync(self) -> None:
        """Make everything written so far survive a power cut. Without a log this is a flush.

        Raises `IOError` if the disk fails; the database is read-only from then on.

        >>> db.put(b"ada", b"1815")
        >>> db.sync()
        """
        super().sync()
        if self.options.wal is None:
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
        self._call(lambda: self._scheduler.flusher.flush(wait))

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
        with bytes after every step. With `wait=False` the work goes on in the background.

        >>> db.delete_range(b"a", b"b")
        >>> db.compact_range(b"a", b"b")
        """
        self._require_writable()
        span = KeyRange(optional_bytes(start), optional_bytes(stop), exclusive=True)
        refuse_in_section()
        pause = self._manual.pause_compaction()
        work = partial(self._manual.compact_range, span, pause, progress)
        try:
            self.flush()
            if wait:
                work()
            else:
                self._scheduler.unattended.start("compact-range", work)
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
        return self._call(lambda: FilterRebuild(self._manual, set(self._filters.payable()), level).run())

    def filter_debt(self) -> dict[int, str]:
        """Return why a table's filter should be rebuilt, by file number.

        The reasons are "absent", "unwanted", "damaged", "bits", "prefix" and "seed".

        >>> db.filter_debt()
        {}
        """
        self._check_open()
        return self._call(self._filters.all)

    def _on_seek_debt(self) -> None:
        """Called by `iterator` when seeks have cost as much as merging L0 would."""
        if not self.readonly and not in_section():
            self._read_hints.mark_l0_seek_heavy()
            uninterruptible(self._scheduler.wake)

    def set_options(self, **changes: Any) -> None:
        """Change options of the open database and store them. They apply to all files written from now on.

        Raises `OptionError` for an unknown option, a wrong value, or an option that needs a reopen.

        >>> db.set_options(bits_per_key=12)
        >>> db.options.bits_per_key
        12.0
        """
        self._require_writable()
        self._call(lambda: self._set_options(changes))

    def _set_options(self, changes: Mapping[str, Any]) -> None:
        with self._versions.commit:
            self._versions.options = self.options.replace_live(**changes)
            open_writer.write_options(self._versions)
        share_memory(self._versions)
        self._tune(self.options)
        self._scheduler.schedule_tick()
        self._scheduler.status.update_pressure()
        self._scheduler.wake()

    def _tune(self, options: Options) -> None:
        ratio = options.filter_shadow_ratio
        self._engine.set_row_cache(options.row_bytes)
        self._engine.set_shadow_period(round(1 / ratio) if ratio else 0)

    def checkpoint(self, dest: str | os.PathLike[str]) -> None:
        """Create a second database at `dest` with the current state. Tables are hard links where possible.

        Raises `IOError` if `dest` exists.

        >>> db.checkpoint("backup.db")
        >>> lsmkv.open("backup.db", "r").close()
        """
        self._require_writable()
        dest_path = filenames.directory_path(dest)
        self.flush()
        checkpoint.create(self._versions, dest_path)

    def ingest(self, paths: Iterable[str | os.PathLike[str]], *, move: bool = False) -> None:
        """Add tables made by `SSTWriter`, all of them or none, as if their entries were written now.

        With `move` the files are linked and removed, else they are copied. Raises `ValueError` if the tables overlap
        each other or one is empty, `CorruptionError` if one is damaged.

        >>> with lsmkv.SSTWriter("people.sst") as writer:
        ...     writer.put(b"ada", b"1815")
        >>> db.ingest(["people.sst"])
        """
        self._require_writable()
        if isinstance(paths, str | bytes | os.PathLike):
            raise TypeError("ingest takes a list of paths, not one path")
        given = [os.fsdecode(path) for path in paths]
        refuse_in_section()
        self._manual.call(lambda: ingest.ingest(self._scheduler, given, move))

    def refresh(self) -> None:
        """Let a read-only handle see what was written since it was opened or last refreshed.

        A handle that writes sees everything anyway. Raises `IOError` if the writer changes the files faster than they
        can be read; the handle then keeps its old state.

        >>> reader = lsmkv.open(db.path, "r")
        >>> reader.refresh()
        """
        self._check_open()
        if self.readonly:
            require_running()
            self._call(self._read_again)

    def _read_again(self) -> None:
        # One at a time, or an older state could replace a newer one. None after a close.
        with self._closing:
            self._check_open()
            versions, report = open_reader.open_for_reading(self.path, self.options, lambda: self._close_waits)
            self._engine.adopt(versions.engine)
            versions.engine = self._engine
            # All of them: one that refers to the old state would keep its tables open.
            self._attach(versions, report)

    # Statistics --------------------------------------------------------------------------------------------

    @property
    def background(self) -> Counters:
        """The counters of background work.

        >>> db.background.flushes
        0
        """
        return self._scheduler.counters

    def property(self, name: str) -> str | None:
        """Return a property as text, or None for an unknown name.

        `lsmkv.stats.introspect.PROPERTIES` has the names.

        >>> db.property("lsmkv.num-files")
        '0'
        """
        self._check_open()
        if not isinstance(name, str):
            raise TypeError(f"a property's name is a str, not {type(name).__name__}")
        return self._call(lambda: introspect.lookup_property(self._scheduler, name))

    def stats(self) -> Stats:
        """Return the counters since the database was opened or `reset_stats` was called, and the current sizes.

        >>> db.put(b"ada", b"1815")
        >>> db.stats().writes.puts
        1
        """
        self._check_open()
        return self._call(lambda: introspect.stats(self._versions, self._jobs, self._scheduler.counters))

    def reset_stats(self) -> None:
        """Set all counters to zero.

        >>> db.reset_stats()
        >>> db.stats().reads.gets
        0
        """
        self._check_open()
        self._engine.reset_counters()
        self._call(self._scheduler.status.reset_counters)

    def explain(self, key: Key) -> introspect.Explain:
        """Trace one lookup: the files probed, their filters' answers, the blocks read, and the time each took.

        >>> db.put(b"ada", b"1815")
        >>> db.explain(b"ada").found
        True
        """
        return introspect.explain(self, as_bytes(key))

    # Closing -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, wait for calls in flight and end the background threads. Later calls raise `ClosedError`.

        Closing twice is no error. Raises the error of the last flush if there is no log to recover from. A finalizer
        may close the database in the middle of another of its calls; the close is then left to another thread.

        >>> db.close()
        >>> db.closed
        True
        """
        if in_section() and not is_finalizing():
            self._close_elsewhere()
        else:
            uninterruptible(lambda: self._shut(flush=True))

    def _close_elsewhere(self) -> None:
        """This thread is inside work that a close waits for."""
        if not self.closed:
            threading.Thread(target=self._shut, args=(True,), name="lsmkv-close").start()

    def _close_at_exit(self) -> None:
        # Acknowledged writes are in the log; writing tables would only delay the exit.
        uninterruptible(lambda: self._shut(flush=self.options.wal is None))

    def _shut(self, flush: bool) -> None:
        if is_finalizing():
            self._abandon(flush)
            return
        if self._pid != os.getpid():
            return
        self._close_waits = True  # ends a refresh
        with self._closing:
            if self.closed:
                return
            problem = self._last_flush() if flush and not self.readonly else None
            if not self.readonly:
                self._scheduler.stop()
            self._engine.close()
            try:
                self._remove_traces()
            finally:
                # A second close does nothing, so whatever failed, the lock goes now.
                if self._lock is not None:
                    self._lock.release()
        if problem is not None:
            raise problem

    def _remove_traces(self) -> None:
        """Drop what the closed engine leaves in memory and in the directory."""
        lifecycle.unregister(self)
        if not self.readonly:
            self._logs.close()
            self._versions.close()
        self._versions.tables.clear()
        if self._lock is not None:
            self._versions.collect_garbage()

    def _abandon(self, flush: bool) -> None:
        """Close while the interpreter finalizes. Other threads have stopped for good, perhaps inside a call or a job,
        so nothing that they use is freed. Acknowledged writes are in the log; without a log they are flushed here.
        """
        if self.closed or self._pid != os.getpid():
            return
        unlogged = flush and not self.readonly and self.options.wal is None
        problem = self._last_flush() if unlogged else None
        # A running job still writes files: then only the end of the process releases the lock.
        if self._engine.close() and self._lock is not None and not self._jobs.running and not self._logs.preparing:
            self._lock.release()
        if problem is not None:
            raise problem

    def _last_flush(self) -> BaseException | None:
        """Flush, and return the error that `close` should raise. With a log a failed flush loses nothing."""
        if self._engine.refusal is not None:
            return None
        self._logs.stop_preparing()
        self._scheduler.status.quiesce()
        try:
            self._scheduler.flusher.flush(last=True)
        except (OSError, Error, MemoryError) as error:
            log.warning("%s: the last flush failed: %s", self.path, error)
            return error if self.options.wal is None else None
        return None

    def __del__(self) -> None:
        if getattr(self, "_scheduler", None) is None or self.closed or self._pid != os.getpid():
            return
        message = f"{self!r} was not closed"
        try:
            if in_section() and not is_finalizing():
                self._close_elsewhere()
            else:
                self._shut(flush=True)
        finally:
            # Last: with `-W error` it raises.
            warnings.warn(message, ResourceWarning, source=self, stacklevel=2)


def _export(versions: VersionSet, jobs: Jobs, counters: Counters) -> None:
    write_stats(versions.directory, introspect.stats(versions, jobs, counters))
