"""Timed refreshes of a read-only handle, in a thread that does not keep the handle alive."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

from lsmkv.errors import ClosedError, Error
from lsmkv_ext.port.finalization import start_thread

log = logging.getLogger("lsmkv")


class Refreshable(Protocol):
    @property
    def path(self) -> str: ...

    def refresh(self) -> bool: ...


class AutoRefresh:
    """A thread that refreshes a handle every so many seconds, until `stop`, or until the handle is closed or gone."""

    def __init__(self, handle: Refreshable, seconds: float) -> None:
        self._stopped = threading.Event()
        stopped = self._stopped
        handle_ref = weakref.ref(handle, lambda _: stopped.set())
        target = threading.Thread(
            target=_refresh, args=(handle_ref, seconds, stopped), name="lsmkv-refresh", daemon=True
        )
        start_thread(target)

    def stop(self) -> None:
        """Does not wait for a refresh in progress: `close` and `refresh` exclude each other by themselves."""
        self._stopped.set()


def _refresh(handle_ref: weakref.ref[Refreshable], seconds: float, stopped: threading.Event) -> None:
    failure = ""
    while not stopped.wait(seconds):
        handle = handle_ref()
        if handle is None:
            return
        try:
            handle.refresh()
            failure = ""
        except ClosedError:
            return
        except (Error, MemoryError) as error:
            # The handle keeps its old state and the next attempt may succeed. Each failure is reported once.
            if str(error) != failure:
                failure = str(error)
                log.warning("%s: a timed refresh failed: %s", handle.path, error)
        del handle
