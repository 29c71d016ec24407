"""Events: what a database does in the background, for listeners (`DB.on`) and for the logger `lsmkv`.

Any thread may call `publish`, under any lock. It drops an event that neither the log nor a listener wants. Any other
goes to a queue for the thread `lsmkv-events`, which it starts. That thread logs and calls listeners without any lock of
the database, and ends when the queue is empty.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lsmkv_ext.port.finalization import is_finalizing, start_thread

log = logging.getLogger("lsmkv")

KINDS = ("open", "recovery", "flush", "compaction", "stall", "alarm", "error", "close")
ALL = "all"
# Events in the queue. Further ones drop the oldest.
LONGEST_QUEUE = 1000
# How long a close waits for listeners.
CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Event:
    """Something that a database did. `DB.on` has the kinds; `details` has the figures of each.

    >>> seen = []
    >>> stop = db.on("flush", seen.append)
    >>> db.put(b"ada", b"1815")
    >>> db.flush()
    >>> db.close()
    >>> seen[0].kind, seen[0]["entries"], seen[0].path == db.path
    ('flush', 1, True)
    """

    kind: str
    path: str
    text: str
    level: int = logging.DEBUG  # of the log record
    details: Mapping[str, Any] = field(default_factory=dict)
    time: float = field(default_factory=time.time)

    def __getitem__(self, name: str) -> Any:
        return self.details[name]

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


Listener = Callable[[Event], object]


class Listeners:
    """The listeners of a database. The database owns this object: a listener that refers to the database makes a cycle,
    which is collected.

    GIL-protected: entries
    """

    def __init__(self) -> None:
        self.entries: tuple[tuple[str, Listener], ...] = ()  # replaced, never changed

    def on(self, kind: str, listener: Listener) -> Callable[[], None]:
        if kind not in KINDS and kind != ALL:
            raise ValueError(f"there are no {kind!r} events; the kinds are {', '.join(KINDS)}, and {ALL!r}")
        if not callable(listener):
            raise TypeError(f"a listener is callable, unlike {listener!r}")
        entry = kind, listener
        self.entries = (*self.entries, entry)

        def off() -> None:
            self.entries = tuple(each for each in self.entries if each is not entry)

        return off


def _nobody() -> Listeners | None:
    return None


def _log(level: int, text: str, *args: object, **options: Any) -> None:
    """Logs in the thread. A filter or handler that raises is reported as an error of the thread, which goes on."""
    try:
        log.log(level, text, *args, **options)
    except BaseException:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class Events:
    """The events of one database. Background work and the thread hold this object, but not the database.

    GIL-protected: all fields. A finalizer or signal handler may publish in the middle of any of the methods.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # Returns the alarms that went on or off. Set by the database; None before that and once it closes.
        self.look_at_alarms: Callable[[], list[Event]] | None = None
        self._listeners: Callable[[], Listeners | None] = _nobody
        self._queue: deque[tuple[Event, bool]] = deque(maxlen=LONGEST_QUEUE)  # and whether to log it
        self.dropped = 0  # events, since the last warning
        self._idle = [True]  # a thread that pops the item may deliver
        self._thread: threading.Thread | None = None

    def set_listeners(self, listeners: Listeners) -> None:
        """Sends events to `listeners` from now on. Holds a weak reference."""
        self._listeners = weakref.ref(listeners)

    def _those_of(self, kind: str) -> list[Listener]:
        listeners = self._listeners()
        entries = () if listeners is None else listeners.entries
        return [listener for wanted, listener in entries if wanted in (kind, ALL)]

    def _wants(self, kind: str, level: int | None) -> bool:
        """Whether a listener or the log wants such events. `level` is None for an event that is not to be logged."""
        return bool(self._those_of(kind)) or (level is not None and log.isEnabledFor(level))

    @property
    def _watched(self) -> bool:
        return self.look_at_alarms is not None and self._wants("alarm", logging.INFO)

    def publish(
        self, kind: str, text: str, level: int = logging.DEBUG, /, *, logged: bool = False, **details: Any
    ) -> None:
        """Queues an event for the log and the listeners. `logged`: the caller has logged it. Takes no lock."""
        if not self._wants(kind, None if logged else level) and not (kind in ("flush", "compaction") and self._watched):
            return
        if len(self._queue) == self._queue.maxlen:
            self.dropped += 1
        self._queue.append((Event(kind, self.path, text, level, details), not logged))
        self._run()

    def _run(self) -> None:
        """Starts the thread unless it runs."""
        if is_finalizing():
            return
        try:
            self._idle.pop()
        except IndexError:
            return
        thread = threading.Thread(target=self._deliver_all, name="lsmkv-events", daemon=True)
        self._thread = thread
        try:
            start_thread(thread)
        except BaseException as error:
            self._thread = None
            self._idle.append(True)  # the next event tries again
            if not isinstance(error, RuntimeError | MemoryError):
                raise

    def _deliver_all(self) -> None:
        while True:
            try:
                while self._queue:
                    self._deliver(*self._queue.popleft())
            finally:
                self._idle.append(True)
            # An event that was published before the append started no thread.
            if not self._queue:
                return
            try:
                self._idle.pop()
            except IndexError:
                return

    def _deliver(self, event: Event, to_log: bool) -> None:
        if self.dropped:
            dropped, self.dropped = self.dropped, 0
            _log(logging.WARNING, "%s: %d events were dropped: a listener is too slow", self.path, dropped)
        self._send(event, to_log)
        if event.kind in ("flush", "compaction") and self._watched and self.look_at_alarms is not None:
            try:
                alarms = self.look_at_alarms()
            except Exception as error:
                # It was closed meanwhile.
                _log(logging.DEBUG, "%s: cannot look at the alarms: %s", self.path, error)
                return
            for alarm in alarms:
                self._send(alarm, True)

    def _send(self, event: Event, to_log: bool) -> None:
        if to_log and log.isEnabledFor(event.level):
            details = {"event": event.kind, "path": event.path, "time": event.time, **event.details}
            _log(event.level, "%s: %s", event.path, event.text, extra={"lsmkv": details})
        for listener in self._those_of(event.kind):
            try:
                listener(event)
            except BaseException:
                _log(logging.ERROR, "%s: a listener of %r events raised", self.path, event.kind, exc_info=True)

    def close(self) -> None:
        """Waits up to CLOSE_SECONDS until all events are delivered. In a listener it does not wait."""
        self.look_at_alarms = None
        thread = self._thread
        if thread is None or thread is threading.current_thread() or is_finalizing():
            return
        deadline = time.monotonic() + CLOSE_SECONDS
        while thread is self._thread and thread.ident is None:
            time.sleep(0.001)  # another thread is starting it
        if thread.ident is not None:
            thread.join(max(deadline - time.monotonic(), 0.0))
        if thread.is_alive():
            log.warning("%s: a listener has not returned; it misses the events after this one", self.path)
            self._listeners = _nobody
