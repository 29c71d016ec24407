"""DB: the public calls of a database, and the wiring of the engine to the control plane.

The engine (`lsmkv_ext.engine`) owns reads and writes, the version set the tree on disk, the scheduler the background
work. A DB owns all of them, the lock file, and the order in which they start and stop.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from lsmkv import checkpoint, filenames, keyspace_changes, lifecycle
from lsmkv import stats as statistics
from lsmkv.auto_refresh import AutoRefresh
from lsmkv.compaction import news
from lsmkv.compaction.counters import Counters
from lsmkv.compaction.memory import share_memory
from lsmkv.compaction.scheduler import Scheduler
from lsmkv.errors import Error, KeyspaceError
from lsmkv.events import Event, Listener, Listeners
from lsmkv.keyspace import Keyspace, KeyspaceCalls
from lsmkv.lockfile import DatabaseLock
from lsmkv.log_supply import LogSupply
from lsmkv.options import Options, check_name, keyspace_options
from lsmkv.recovery import open_reader, open_writer
from lsmkv.recovery.stored_state import RecoveryReport
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.port import zstd
from lsmkv_ext.port.finalization import RLock, is_finalizing, require_running
from lsmkv_ext.port.section import in_section
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.port.wall_clock import ManualClock

if TYPE_CHECKING:
    from lsmkv.option_types import KeyspaceOptions, LiveOptions

log = logging.getLogger("lsmkv")

T = TypeVar("T")


class DB(KeyspaceCalls):
    """An open database: a mapping from bytes to bytes in key order. `lsmkv.open` returns it.

    Any number of threads may use it. `close` it, or use it as a context manager.

    >>> db[b"ada"] = b"1815"
    >>> list(db.items())
    [(b'ada', b'1815')]
    """

    def __init__(
        self,
        versions: VersionSet,
        report: RecoveryReport,
        lock: DatabaseLock | None,
        clock: ManualClock | None = None,
    ) -> None:
        self._lock = lock
        self._clock = clock
        self._pid = os.getpid()
        self._closing = RLock()
        self._bind(versions.engine, versions.default.live)
        self._close_waits = False
        self._auto_refresh: AutoRefresh | None = None
        self._attach(versions, report)
        self._engine.set_row_cache(versions.options.row_bytes)
        self._tune()
        if lock is not None:
            try:
                self._scheduler.start()
                self._upgrade_for(versions.options)
            except BaseException:
                # Threads that have started must end before the lock is released.
                self._shut(flush=False)
                raise
        lifecycle.register(self)
        news.opened(self._scheduler.status.events, report, len(versions.tables), lock is None)

    def _attach(self, versions: VersionSet, report: RecoveryReport) -> None:
        """Create the objects behind the engine. They refer to each other and to the engine, never to this object:
        otherwise their threads would keep an abandoned database alive.
        """
        engine = versions.engine
        self._versions = versions
        self.recovery_report = report
        self._logs: LogSupply = LogSupply(versions)
        self._scheduler: Scheduler = Scheduler(versions, self._logs, _export)
        self._listeners = Listeners()
        self._scheduler.status.events.set_listeners(self._listeners)
        self._scheduler.status.events.look_at_alarms = _alarm_watch(self._scheduler)
        if self._lock is not None:
            # Interrupts are deferred: the scheduler must learn of a refusal, and the reserve has a lock.
            engine.on_full = self._scheduler.flusher.make_room
            engine.on_refused = partial(uninterruptible, self._scheduler.status.refused, defer_interrupt=True)
            engine.release_reserve = partial(uninterruptible, versions.reserve.release, defer_interrupt=True)
            engine.refill_reserve = partial(uninterruptible, versions.reserve.refill, defer_interrupt=True)
            upgrade = partial(keyspace_changes.upgrade, self._scheduler, self._logs)
            engine.on_upgrade = partial(uninterruptible, upgrade)
            engine.on_large_value = partial(uninterruptible, self._scheduler.new_value_log, defer_interrupt=True)
            engine.on_streamed_value = partial(uninterruptible, versions.new_streamed_value_log)

    # Identity ----------------------------------------------------------------------------------------------

    @property
    def _database(self) -> DB:
        return self

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

    # Keyspaces ---------------------------------------------------------------------------------------------

    def keyspace(self, name: str, *, create: bool = True, **options: Unpack[KeyspaceOptions]) -> Keyspace:
        """Return the keyspace `name`: a mapping of its own in the same database. It is created if it is missing.

        Keyspaces share the log, the memory and the background threads; batches and snapshots span them. `options` are
        those of its tables, such as `bits_per_key` or `compression`, and are stored with it; the others are the
        database's. For a keyspace that exists they change the stored ones.

        Raises `KeyspaceError` if it is missing and `create` is false, `OptionError` for a wrong option.

        >>> users = db.keyspace("users", bits_per_key=12)
        >>> users[b"ada"] = b"1815"
        >>> dict(users), dict(db)
        ({b'ada': b'1815'}, {})
        """
        self._check_open()
        check_name(name)
        given = keyspace_options(options)
        return self._call(lambda: self._keyspace(name, create, given))

    def _keyspace(self, name: str, create: bool, given: dict[str, Any]) -> Keyspace:
        tree = self._versions.tree_named(name)
        if tree is None:
            if not create:
                raise KeyspaceError(f"there is no keyspace {name!r}")
            tree = keyspace_changes.create(self._scheduler, self._logs, name, given)
        keyspace = Keyspace(self, tree)
        if given:
            keyspace._set_options(given)
        return keyspace

    def keyspaces(self) -> list[str]:
        """Return the names of the keyspaces, sorted. The default keyspace, the database itself, has none.

        >>> db.keyspace("users").name in db.keyspaces()
        True
        """
        self._check_open()
        return sorted(tree.name for keyspace, tree in self._versions.state.trees.items() if keyspace)

    def drop_keyspace(self, name: str) -> None:
        """Remove a keyspace with all its keys, and give the space back. Other keyspaces are flushed first.

        Later calls on it raise `KeyspaceError`; snapshots and iterators of it stay valid. Raises `KeyspaceError` if
        there is none.

        >>> users = db.keyspace("users")
        >>> db.drop_keyspace("users")
        >>> db.keyspaces()
        []
        """
        self._require_writable()
        check_name(name)
        self._call(lambda: self._drop(name))

    def _drop(self, name: str) -> None:
        tree = self._versions.tree_named(name)
        if tree is None:
            raise KeyspaceError(f"there is no keyspace {name!r}")
        keyspace_changes.drop(self._scheduler, tree)

    # Maintenance -------------------------------------------------------------------------------------------

    def set_options(self, **changes: Unpack[LiveOptions]) -> None:
        """Change options of the open database and store them. They apply to all files written from now on.

        Raises `OptionError` for an unknown option, a wrong value, or an option that needs a reopen.

        >>> db.set_options(bits_per_key=12)
        >>> db.options.bits_per_key
        12.0
        """
        self._require_writable()
        self._call(lambda: self._set_options(changes))

    def _set_options(self, changes: Mapping[str, Any]) -> None:
        self._upgrade_for(self.options.replace_live(**changes))
        with self._versions.commit:
            self._versions.options = self.options.replace_live(**changes)
            open_writer.write_options(self._versions)
        share_memory(self._versions)
        self._engine.set_row_cache(self.options.row_bytes)
        self._scheduler.schedule_tick()
        self._options_changed()

    def _upgrade_for(self, options: Options) -> None:
        """Give the database the latest format if `options` need it. Raise FormatError if they need a codec that is not
        installed.
        """
        if options.needs_zstd:
            zstd.require()
        if options.needs_format_2:
            keyspace_changes.upgrade(self._scheduler, self._logs)

    def _options_changed(self) -> None:
        """Apply the options of all keyspaces to what is in memory."""
        self._tune()
        self._scheduler.status.update_pressure()
        self._scheduler.wake()

    def _tune(self) -> None:
        for tree in self._versions.trees.values():
            tree.tune(tree.options)

    def checkpoint(self, dest: str | os.PathLike[str]) -> None:
        """Create a second database at `dest` with the current state. Tables are hard links where possible.

        A read-only handle copies the state that it shows, also while another process writes. Raises `IOError` if `dest`
        exists.

        >>> db.checkpoint("backup.db")
        >>> lsmkv.open("backup.db", "r").close()
        """
        dest_path = filenames.directory_path(dest)
        checkpoint.create(self._flushed(), dest_path)

    def _flushed(self) -> VersionSet:
        """The version set after a flush. A reader cannot flush: a checkpoint of it writes its memtables."""
        self._check_open()
        if self._lock is not None:
            self._require_writable()
            self.flush()
        return self._versions

    def refresh(self) -> bool:
        """Let a read-only handle see what was written since it was opened or last refreshed.

        Return whether anything may have changed. If nothing has, this takes microseconds. A handle that writes sees
        everything anyway. Raises `IOError` if the writer changes the files faster than they can be read; the handle
        then keeps its old state.

        >>> reader = lsmkv.open(db.path, "r")
        >>> db[b"ada"] = b"1815"
        >>> reader.refresh(), dict(reader)
        (True, {b'ada': b'1815'})
        """
        self._check_open()
        seen = self._versions.seen
        if not self.readonly or (seen is not None and seen.is_current()):
            return False
        require_running()
        self._call(self._read_again)
        return True

    def refresh_every(self, seconds: float | None) -> None:
        """Refresh a read-only handle every so many seconds in the background, or with None no longer.

        A refresh that fails is logged, and the handle keeps its old state. A handle that writes sees everything anyway.
        Pickled and forked handles do not refresh themselves.

        Raises `ValueError` unless `seconds` is positive and finite.

        >>> reader = lsmkv.open(db.path, "r")
        >>> reader.refresh_every(5)
        >>> reader.close()
        """
        if seconds is not None:
            seconds = float(seconds)
            if not 0 < seconds <= threading.TIMEOUT_MAX:
                raise ValueError(f"seconds must be positive and finite, not {seconds}")
        self._check_open()
        with self._closing:
            self._check_open()
            self._stop_refreshing()
            if seconds is not None and self.readonly:
                self._auto_refresh = AutoRefresh(self, seconds)

    def _stop_refreshing(self) -> None:
        if self._auto_refresh is not None:
            self._auto_refresh.stop()
            self._auto_refresh = None

    def _read_again(self) -> None:
        # One at a time, or an older state could replace a newer one. None after a close.
        with self._closing:
            self._check_open()
            versions, report = open_reader.open_for_reading(
                self.path, self.options, lambda: self._close_waits, self._clock
            )
            self._versions.adopt(versions)
            self.recovery_report = report
            self._tune()

    # Events ------------------------------------------------------------------------------------------------

    def on(self, kind: str, listener: Listener) -> Callable[[], None]:
        """Call `listener(event)` at every event of a kind, or of "all" kinds. Return a function that ends this.

        The kinds are "flush", "compaction", "stall", "alarm", "error" and "close". Listeners run one after the other in
        a thread of the database, which holds no lock: they may call the database, and close it. An error that one
        raises is logged. docs/monitoring.md has the details of each kind.

        Raises `ValueError` for an unknown kind.

        >>> seen = []
        >>> stop = db.on("flush", seen.append)
        >>> db.put(b"ada", b"1815")
        >>> db.flush()
        >>> stop()
        """
        self._check_open()
        return self._listeners.on(kind, listener)

    # Statistics --------------------------------------------------------------------------------------------

    @property
    def background(self) -> Counters:
        """The counters of background work.

        >>> db.background.flushes
        0
        """
        return self._scheduler.counters

    def reset_stats(self) -> None:
        """Set all counters to zero.

        >>> db.reset_stats()
        >>> db.stats().reads.gets
        0
        """
        self._check_open()
        self._engine.reset_counters()
        self._call(self._scheduler.status.reset_counters)

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
            self._stop_refreshing()
            problem = self._last_flush() if flush and not self.readonly else None
            if not self.readonly:
                self._scheduler.stop()
            self._engine.close()
            try:
                self._remove_traces()
            finally:
                # Release the lock even if that failed: a second close does nothing.
                if self._lock is not None:
                    self._lock.release()
        news.closed(self._scheduler.status.events)
        self._scheduler.status.events.close()
        if problem is not None:
            raise problem

    def _remove_traces(self) -> None:
        """Drop what the closed engine leaves in memory and in the directory."""
        lifecycle.unregister(self)
        if not self.readonly:
            self._logs.close()
            self._versions.close()
        self._versions.release()
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
        if self._engine.close() and self._lock is not None and not self._scheduler.running and not self._logs.preparing:
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


def _export(scheduler: Scheduler) -> None:
    found = statistics.introspect.stats_by_name(scheduler)
    statistics.export.write_stats(scheduler.versions.directory, found.pop(""), found)


def _alarm_watch(scheduler: Scheduler) -> Callable[[], list[Event]]:
    """Return a function that looks at the alarms. Its first call imports the statistics."""
    made: list[Callable[[], list[Event]]] = []

    def look() -> list[Event]:
        if not made:
            made.append(statistics.alarms.AlarmWatch(scheduler).look)
        return made[0]()

    return look
