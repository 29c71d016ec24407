"""DB: the engine's calls with the control plane behind them. Wiring; what decides and what works is
elsewhere.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from operator import index
from typing import Any

from lsmkv import checkpoint, filenames, ingest, lifecycle
from lsmkv.compaction.jobs import Jobs
from lsmkv.compaction.picker import MANUAL, NO_HINTS, CompactionPlan, Hints, Kind, choose_range, files_to_compact
from lsmkv.compaction.scheduler import CompactionPause, Pressure, Scheduler
from lsmkv.errors import ClosedError, Error, ReadOnlyError
from lsmkv.filters import policy
from lsmkv.lockfile import DatabaseLock
from lsmkv.log_supply import LogSupply
from lsmkv.mapping import Key, OrderedMapping, as_bytes
from lsmkv.options import MAX_LEVELS, Options
from lsmkv.prefixed import PrefixedDB, delete_from
from lsmkv.recovery import recovery
from lsmkv.recovery.recovery import RecoveryReport
from lsmkv.stats import introspect
from lsmkv.stats.metrics import Stats
from lsmkv.version.manifest import replace_file
from lsmkv.version.version import FileMeta, KeyRange, Version
from lsmkv.version.version_set import Readers, VersionSet
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.engine import Engine, SnapshotBase
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import RLock, is_finalizing, require_running, start_thread
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.table.table import Table

log = logging.getLogger("lsmkv")

Progress = Callable[[int, int], None]

# A wasted read costs about as much as compacting this many bytes: a table with more of them than its size
# is worth moving on. Few reads prove nothing.
BYTES_PER_WASTED = 16 << 10
MIN_WASTED = 1000


class Snapshot(SnapshotBase, OrderedMapping, Mapping[bytes, bytes]):
    """One state of the database: a mapping with the same reads. It holds files until it is closed or
    collected.
    """

    iterator = SnapshotBase._iterator
    cursor = SnapshotBase._cursor
    get = SnapshotBase.get
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        return PrefixedDB(self, prefix)

    def __repr__(self) -> str:
        return f"<lsmkv.Snapshot at {self.sequence}{' (closed)' if self.closed else ''}>"


class DB(Engine, OrderedMapping, MutableMapping[bytes, bytes]):
    """An open database. `lsmkv.open` makes it; `get`, `put` and their kin are the engine's own methods."""

    def __init__(self, versions: VersionSet, report: RecoveryReport, lock: DatabaseLock | None, last_seq: int) -> None:
        self._lock = lock
        self._pid = os.getpid()
        self._closing = RLock()
        self._debts: tuple[Version, Options, frozenset[int]] | None = None
        self._seek_heavy: frozenset[int] = frozenset()
        self._attach(versions, report)
        options = versions.options
        self._configure(versions.directory, versions.state.seed, readonly=lock is None, sync_default=options.sync)
        self._set_row_cache(options.row_bytes)
        self._set_shadow(options)
        memtables = versions.memtables() or [recovery.empty_memtable(versions)]
        writer = versions.logs.get(memtables[0].number)
        self._start(versions.table_levels(), memtables, writer, last_seq)
        if lock is not None:
            self._wire()
            try:
                self._scheduler.start()
            except BaseException:
                # Those that run already must not go on once the lock is free.
                self._shut(flush=False)
                raise
        lifecycle.register(self)

    def _attach(self, versions: VersionSet, report: RecoveryReport) -> None:
        self._versions = versions
        self.recovery_report = report
        self._jobs: Jobs = Jobs(versions)
        self._logs: LogSupply = LogSupply(versions)
        self._scheduler: Scheduler = Scheduler(versions, self._jobs, self._logs)

    def _wire(self) -> None:
        """The background refers to the database weakly, so that one nobody holds any more can be
        collected.
        """
        this = weakref.ref(self)

        def on_poison(error: BaseException) -> None:
            if (db := this()) is not None:
                Engine._poison(db, error)
            scheduler = background()
            if scheduler is not None:
                scheduler.wake()

        def set_pressure(pressure: Pressure) -> None:
            if (db := this()) is not None:
                db._set_delay(pressure.delay_ns)
                db._set_stopped(pressure.stopped)

        def tick() -> None:
            if (db := this()) is not None:
                db._tick()

        def hints(version: Version, options: Options) -> Hints:
            return NO_HINTS if (db := this()) is None else db._hints(version, options)

        def counters() -> Mapping[str, Any]:
            return {} if (db := this()) is None else db.counters()

        background = weakref.ref(self._scheduler)
        self._versions.readers = _Readers(this)
        self._versions.on_poison = on_poison
        self._scheduler.set_pressure = set_pressure
        self._scheduler.tick = tick
        self._scheduler.hints = hints
        self._jobs.read_counters = counters

    # Identity ----------------------------------------------------------------------------------------------

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        # A handle, not its contents: comparing those would read two databases.
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
        return self._versions.options

    # Reading -----------------------------------------------------------------------------------------------

    iterator = Engine._iterator
    cursor = Engine._cursor
    get = Engine.get

    def snapshot(self) -> Snapshot:
        return Snapshot(self)

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        return PrefixedDB(self, prefix)

    def approximate_len(self) -> int:
        """From counts alone: overwritten and deleted keys that compaction has not met yet blur it."""
        self._check_open()
        return uninterruptible(lambda: introspect.approximate_len(self._versions))

    def approximate_size(self, start: Key | None = None, stop: Key | None = None) -> int:
        """Bytes of table files that the range takes up."""
        self._check_open()
        span = _key(start), _key(stop)
        return uninterruptible(lambda: introspect.approximate_size(self._versions, *span))

    # Writing -----------------------------------------------------------------------------------------------

    def write_batch(self, *, transaction: bool = True, sync: bool | None = None) -> WriteBatch:
        """A batch of writes that becomes visible at once. As a context manager it writes at the end of the
        block;
        with `transaction` (the default) not if the block raised.
        """
        self._check_open()
        return WriteBatch(self, transaction=transaction, sync=sync)

    def sync(self) -> None:
        """Everything written so far survives a power cut once this returns; without a log, by a flush."""
        super().sync()
        if self.options.wal is None:
            self.flush()

    def clear(self) -> None:
        """Deletes every key, at the cost of one small write."""
        delete_from(self, b"")

    def _poison(self, error: BaseException) -> None:
        """Also called by the engine for a log that could not be synced: the background stops too."""
        super()._poison(error)
        uninterruptible(lambda: self._versions.poison(error), defer_interrupt=True)

    def _on_full(self) -> None:
        """The engine's hook: runs in a writer's thread that holds the writer's turn until we return."""
        uninterruptible(self._make_room, defer_interrupt=True)

    def _make_room(self) -> None:
        self._scheduler.wait_for_room(self.options.max_write_buffers - 1)
        self._rotate_active()

    def _rotate_active(self) -> Memtable:
        """Only with the writer's turn held. Returns the memtable that now waits for its flush."""
        versions = self._versions
        versions.require_writable()
        fresh, writer = self._logs.take(self._last_seq)
        full = self._active
        try:
            versions.rotate(fresh, writer, self._rotate)
        except BaseException:
            self._logs.give_back(fresh)
            raise
        self._scheduler.wake()
        return full

    def _require_writable(self) -> None:
        self._check_open()
        if self.readonly:
            raise ReadOnlyError("the database was opened read-only")
        self._versions.require_writable()

    # Maintenance -------------------------------------------------------------------------------------------

    def flush(self, wait: bool = True) -> None:
        """Writes what is in memory into a table."""
        self._require_writable()
        uninterruptible(lambda: self._flush(wait))

    def _flush(self, wait: bool) -> None:
        with self._exclusive():
            self._require_writable()
            if not self._active.empty:
                self._scheduler.wait_for_room(self.options.max_write_buffers)
                self._rotate_active()
        if wait:
            with self._versions.lock:
                newest = self._versions.immutables[:1]
            for memtable in newest:
                self._scheduler.wait_flushed(memtable)

    def compact_range(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        wait: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Brings everything in [start, stop) down to the last level, without deletes and shadowed versions.

        `progress(done, total)` is called with bytes after every step.
        """
        self._require_writable()
        span = KeyRange(_key(start), _key(stop), exclusive=True)
        hold = self._scheduler.pause_compaction()
        work = partial(_compact, self._scheduler, span, progress, hold)
        try:
            self.flush()
            if wait:
                work()
            else:
                self._scheduler.in_background("compact-range", work)
        except BaseException:
            hold.release()
            raise

    def rebuild_filters(self, level: int | None = None) -> int:
        """Gives every table whose filter does not suit its level, options or seed a new one; how many there
        were.
        """
        self._require_writable()
        if level is not None and not 0 <= index(level) < MAX_LEVELS:
            raise ValueError(f"level must be from 0 to {MAX_LEVELS - 1}, not {level}")
        return uninterruptible(lambda: self._rebuild_all(level))

    def _rebuild_all(self, level: int | None) -> int:
        # Those that owe now: a table that still owes afterwards would owe for ever.
        waiting = set(self._payable_debt())
        rebuilt: list[int] = []
        errors: list[BaseException] = []

        def share() -> None:
            try:
                rebuilt.append(self._rebuild(waiting, level))
            except BaseException as error:
                errors.append(error)

        helpers: list[threading.Thread] = []
        # As many as can be had: none while the interpreter ends.
        with suppress(RuntimeError):
            for i in range(1, self.options.max_background_jobs):
                helper = threading.Thread(target=share, name=f"lsmkv-filters-{i}", daemon=True)
                start_thread(helper)
                helpers.append(helper)
        share()
        for helper in helpers:
            helper.join()
        if errors:
            raise errors[0]
        return sum(rebuilt)

    def _rebuild(self, waiting: set[int], level: int | None) -> int:
        """One thread's share of `waiting`. Tables that vanished meanwhile are left out."""
        rebuilt = 0
        while any(True for _ in self._found_in(self._versions.current, waiting, level)):
            if self._scheduler.run_manual(partial(self._pick_rebuild, waiting, level)) is None:
                self._scheduler.wait_change()
            else:
                rebuilt += 1
        return rebuilt

    def _pick_rebuild(
        self, waiting: set[int], level: int | None, version: Version, busy: Sequence[CompactionPlan]
    ) -> CompactionPlan | None:
        """Called with the scheduler's lock held, so no table is taken twice."""
        for at, f in self._found_in(version, waiting, level):
            plan = CompactionPlan(Kind.FILTERS, at, at, upper=(f,), reason=MANUAL)
            if _if_free(plan, version, busy) is not None:
                waiting.discard(f.number)
                return plan
        return None

    def _found_in(self, version: Version, numbers: set[int], level: int | None) -> Iterable[tuple[int, FileMeta]]:
        """Level and file of those of `numbers` that are still in the tree."""
        for n, files in enumerate(version.levels):
            if level in (None, n):
                yield from ((n, f) for f in files if f.number in numbers)

    def filter_debt(self) -> dict[int, str]:
        """File number -> why its filter should be rebuilt."""
        return uninterruptible(self._filter_debt)

    def _filter_debt(self) -> dict[int, str]:
        self._check_open()
        versions = self._versions
        with versions.lock:
            version = versions.current
            infos = versions.filter_infos()
        return policy.debts(version, self._jobs.policy(version), infos, versions.state.seed)

    def _payable_debt(self) -> dict[int, str]:
        """Without tables hashed with another seed (it is in their blocks too) and tables without any key."""
        empty = {f.number for f in self._versions.current.files() if not f.entries}
        return {n: why for n, why in self.filter_debt().items() if why != "seed" and n not in empty}

    def _hints(self, version: Version, options: Options) -> Hints:
        return Hints(self._seek_heavy | self._wasted_reads(), self._debt_to_pay(version, options))

    def _wasted_reads(self) -> frozenset[int]:
        tables = self._versions.tables.items()
        return frozenset(n for n, t in tables if t.wasted > max(MIN_WASTED, t.file_size // BYTES_PER_WASTED))

    def _debt_to_pay(self, version: Version, options: Options) -> frozenset[int]:
        if options.filter_debt_ratio is None:
            return frozenset()
        if self._debts is None or self._debts[0] is not version or self._debts[1] is not options:
            owed = self._payable_debt()
            over = policy.debt_ratio(version, owed) > options.filter_debt_ratio
            self._debts = (version, options, frozenset(owed) if over else frozenset())
        return self._debts[2]

    def _on_seek_debt(self) -> None:
        """The engine's hook: many seeks had to look into every table of L0. Merged, they look into one."""
        if not self.readonly:
            self._seek_heavy = frozenset(f.number for f in self._versions.current.levels[0])
            uninterruptible(self._scheduler.wake)

    def set_options(self, **changes: Any) -> None:
        """Changes options on the open database; what is written from now on follows them."""
        self._require_writable()
        uninterruptible(lambda: self._set_options(changes))

    def _set_options(self, changes: Mapping[str, Any]) -> None:
        with self._versions.commit:
            self._versions.options = self.options.replace_live(**changes)
            recovery.write_options(self._versions)
        self._scheduler.share_memory()
        options = self.options
        self._set_row_cache(options.row_bytes)
        self._set_shadow(options)
        if options.sync_interval_ms:
            self._scheduler.ensure_timer()
        self._scheduler.update_pressure()
        self._scheduler.wake()

    def _set_shadow(self, options: Options) -> None:
        ratio = options.filter_shadow_ratio
        self._set_shadow_period(round(1 / ratio) if ratio else 0)

    def checkpoint(self, dest: str | os.PathLike[str]) -> None:
        """A second database at `dest` with the state of now. Tables are hard links where the file
        system can.
        """
        self._require_writable()
        dest_path = filenames.folder_path(dest)
        self.flush()
        checkpoint.create(self._versions, dest_path)

    def ingest(self, paths: Iterable[str | os.PathLike[str]], *, move: bool = False) -> None:
        """Takes tables made by SSTWriter in, as if all their entries were written now, at once."""
        self._require_writable()
        if isinstance(paths, str | bytes | os.PathLike):
            raise TypeError("ingest takes a list of paths, not one path")
        given = [os.fsdecode(path) for path in paths]
        self._scheduler.call(lambda: ingest.ingest(self, given, move))

    def refresh(self) -> None:
        """A read-only handle sees what was written since it was opened, or the database that took its place.
        On a writing handle there is nothing to do.
        """
        self._check_open()
        if self.readonly:
            require_running()
            uninterruptible(self._read_again)

    def _read_again(self) -> None:
        # One at a time, or an older state could replace a newer one; and none after a close.
        with self._closing:
            self._check_open()
            report = RecoveryReport()
            versions = recovery.open_for_reading(self.path, self.options, report)
            memtables = versions.memtables() or [recovery.empty_memtable(versions)]
            state = versions.state
            self._refresh(versions.table_levels(), memtables, state.last_seq, state.seed)
            # All of it: whatever knew the old state would keep its tables open.
            self._attach(versions, report)

    # Seeing ------------------------------------------------------------------------------------------------

    @property
    def background(self) -> Any:
        """What background work did: `scheduler.Counters`."""
        return self._scheduler.counters

    def property(self, name: str) -> str | None:
        """A named fact as text, None for an unknown name; `lsmkv.stats.introspect.PROPERTIES` has the names."""
        self._check_open()
        if not isinstance(name, str):
            raise TypeError(f"a property's name is a str, not {type(name).__name__}")
        return uninterruptible(lambda: introspect.lookup(self, name))

    def stats(self) -> Stats:
        """Everything counted since the database was opened (or `reset_stats`), and what there is now."""
        self._check_open()
        return uninterruptible(lambda: introspect.stats(self))

    def reset_stats(self) -> None:
        self._check_open()
        self.reset_counters()
        uninterruptible(self._scheduler.reset_counters)

    def explain(self, key: Key) -> introspect.Explain:
        """Traces one lookup: every file considered, what its filter said, the block, from where, how long."""
        return introspect.explain(self, as_bytes(key))

    def _tick(self) -> None:
        options = self.options
        if options.sync_interval_ms:
            try:
                self.sync()
            except (ClosedError, ReadOnlyError):
                return
            except OSError as error:
                log.error("%s: background sync failed: %s", self.path, error)
        if options.stats_export:
            self._export_stats()

    def _export_stats(self) -> None:
        try:
            body = {"pid": os.getpid(), "time": time.time(), "stats": self.stats().to_dict()}
            data = json.dumps(body, default=str).encode()
            replace_file(self.path, filenames.STATS, data, durable=False)
        except ClosedError:
            return
        except OSError as error:
            log.warning("%s: cannot write %s: %s", self.path, filenames.STATS, error)

    # The end -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flushes, waits for calls in flight, ends the background work. Afterwards every call raises
        ClosedError.
        """
        uninterruptible(lambda: self._shut(flush=True))

    def _close_at_exit(self) -> None:
        # What was acknowledged is in the log; writing tables would only delay the exit.
        uninterruptible(lambda: self._shut(flush=self.options.wal is None))

    def _shut(self, flush: bool) -> None:
        if is_finalizing():
            self._abandon(flush)
            return
        if self._pid != os.getpid():
            return
        with self._closing:
            if self.closed:
                return
            problem = self._last_flush() if flush and not self.readonly else None
            if not self.readonly:
                self._scheduler.stop()
            self._close()
            lifecycle.unregister(self)
            if not self.readonly:
                self._logs.close()
                self._versions.close()
            self._versions.tables.clear()
            self._versions.active = None
            self._versions.immutables.clear()
            if self._lock is not None:
                self._versions.collect_garbage()
                self._lock.release()
        if problem is not None:
            raise problem

    def _abandon(self, flush: bool) -> None:
        """Closes while the interpreter finalizes. The other threads have stopped for good, some perhaps inside a
        call or a job: what they use stays. What was acknowledged is in the log; without a log it is flushed here.
        """
        if self.closed or self._pid != os.getpid():
            return
        unlogged = flush and not self.readonly and self.options.wal is None
        problem = self._last_flush() if unlogged else None
        # A job that still runs writes files: then the lock goes with the process.
        if self._close() and self._lock is not None and not self._jobs.running and not self._logs.preparing:
            self._lock.release()
        if problem is not None:
            raise problem

    def _last_flush(self) -> BaseException | None:
        """The error that close should end with, if any: only without a log is a failed flush a loss."""
        if self._versions.poisoned is not None:
            return None
        self._logs.stop_preparing()
        try:
            self._flush(wait=True)
        except (OSError, Error, MemoryError) as error:
            log.warning("%s: the last flush failed: %s", self.path, error)
            return error if self.options.wal is None else None
        return None

    def _forked(self) -> None:
        """In a forked child: the engine refuses every call by itself; nothing here may touch a file or a
        lock.
        """

    def __del__(self) -> None:
        if getattr(self, "_scheduler", None) is None or self.closed or self._pid != os.getpid():
            return
        message = f"{self!r} was not closed"
        try:
            if self._scheduler.owns_this_thread():
                # Collected in a background thread, which cannot wait for itself.
                threading.Thread(target=self._shut, args=(True,), name="lsmkv-close").start()
            else:
                self._shut(flush=True)
        finally:
            # Last: where warnings are errors, it raises.
            warnings.warn(message, ResourceWarning, source=self, stacklevel=2)


class _Readers(Readers):
    """Refers to the database weakly, like all of the background."""

    def __init__(self, db: weakref.ref[DB]) -> None:
        self._db = db

    def prepare(self, levels: list[list[Table]], flushed: Sequence[Memtable], last_seq: int) -> None:
        if (db := self._db()) is not None:
            db._prepare(levels, flushed, last_seq)

    def publish(self) -> None:
        if (db := self._db()) is not None:
            db._publish()

    def abandon(self) -> None:
        if (db := self._db()) is not None:
            db._discard_prepared()


def _key(key: Key | None) -> bytes | None:
    return None if key is None else as_bytes(key)


def _if_free(plan: CompactionPlan, version: Version, busy: Sequence[CompactionPlan]) -> CompactionPlan | None:
    if any(other.kind is Kind.SHIFT for other in busy):
        return None
    taken = {f.number for other in busy for f in other.inputs}
    present = version.level_of(plan.upper[0].number) == plan.level
    spans = any(other.output_level == plan.level and other.inputs and other.span.overlaps(plan.span) for other in busy)
    return plan if present and plan.upper[0].number not in taken and not spans else None


def _compact(scheduler: Scheduler, span: KeyRange, progress: Progress | None, hold: CompactionPause) -> None:
    try:
        _compact_levels(scheduler, span, progress, hold)
    finally:
        hold.release()


def _compact_levels(scheduler: Scheduler, span: KeyRange, progress: Progress | None, hold: CompactionPause) -> None:
    steps = uninterruptible(lambda: _Steps(scheduler, span, hold))
    done = 0
    while True:
        plan = scheduler.run_manual(steps.pick)
        if plan is not None:
            done += plan.input_bytes
            if progress is not None:
                progress(min(done, steps.total), steps.total)
        elif steps.wanted is not None:
            scheduler.wait_unblocked(steps.wanted, span)
        else:
            break
    if progress is not None:
        progress(steps.total, steps.total)


class _Steps:
    """The plans of one `compact_range`, level by level from the top. Files that reach L0 meanwhile are left to the next
    one.
    """

    def __init__(self, scheduler: Scheduler, span: KeyRange, hold: CompactionPause) -> None:
        versions = scheduler.versions
        with versions.lock:
            version, self._shifts = versions.current, versions.shifts
        self._scheduler = scheduler
        self._span = span
        self._hold = hold
        self._young = {f.number for f in version.levels[0]}
        self._level = 0
        self._after = b""  # the level is done below this key
        self._relieved = False  # the last plan was one for stopped writers
        self.total = sum(f.size for level in range(MAX_LEVELS) for f in version.overlapping(level, span))
        self.wanted: CompactionPlan | None = None  # the next step, blocked or not; None: all is done

    def pick(self, version: Version, busy: Sequence[CompactionPlan]) -> CompactionPlan | None:
        """The next step. None: it is blocked, or all is done. The scheduler's lock is held."""
        self._descend(version)
        self.wanted = self._step(version)
        if self.wanted is None:
            return None
        step = self._step(version, busy)
        if self._scheduler.writers_stopped and (step is None or not self._relieved):
            # Our steps may keep others from L0, so we merge it. Every second plan is a step of ours all the same.
            relief = choose_range(version, self._scheduler.options, 0, busy=busy)
            if relief is not None:
                self._relieved = True
                self._hold.narrow(self.wanted)
                return relief
        if step is None:
            self._hold.narrow(self.wanted)
            return None
        self._hold.lift()
        self._relieved = False
        if self._level:
            self._after = max(f.largest for f in step.upper) + b"\0"
        return step

    def _descend(self, version: Version) -> None:
        """To the next level that has something to do; below the last one where none has."""
        shifts = self._scheduler.versions.shifts
        if self._level:
            self._level += shifts - self._shifts
        self._shifts = shifts
        while self._level <= version.last_level and not self._left(version):
            self._level, self._after = self._level + 1, b""

    def _left(self, version: Version) -> bool:
        files = files_to_compact(version, self._level, self._span, self._after)
        return any(self._level or f.number in self._young for f in files)

    def _step(self, version: Version, busy: Sequence[CompactionPlan] = ()) -> CompactionPlan | None:
        if self._level > version.last_level:
            return None
        return choose_range(version, self._scheduler.options, self._level, self._span, busy, self._after)
