"""Work whose caller does not wait, such as `compact_range(wait=False)`. Each runs in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lsmkv.compaction import news
from lsmkv.compaction.running import RunningJobs
from lsmkv.compaction.status import Status
from lsmkv.errors import IOError, ReadOnlyError
from lsmkv_ext.port.finalization import start_thread
from lsmkv_ext.port.section import section
from lsmkv_ext.port.uninterruptible import uninterruptible

log = logging.getLogger("lsmkv")


class Unattended:
    """The fields are guarded by the version set's `lock`."""

    def __init__(self, status: Status, running: RunningJobs) -> None:
        self.running = 0
        self.threads: list[threading.Thread] = []
        self._status = status
        self._lock = status.versions.lock
        self._jobs = running

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Runs `work` in a new thread; counts and logs its error. Raises RuntimeError if no thread can be started."""
        uninterruptible(lambda: self._start(name, work))

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=section, args=(self._run, name, work), name=f"lsmkv-{name}", daemon=True)
        with self._lock:
            threads = [*(each for each in self.threads if each.is_alive()), thread]
            start_thread(thread)
            self.threads = threads
            self.running += 1

    def _run(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except IOError as error:
            # It may be a failed fsync, which is final for every caller.
            self._status.failed("compaction", name, error, 0.0)
        except BaseException as error:
            self._failed(name, error)
        finally:
            with self._lock:
                self.running -= 1
                self._status.changed()

    def _failed(self, name: str, error: BaseException) -> None:
        if not self._jobs.cancelled and not isinstance(error, ReadOnlyError):
            with self._lock:
                self._status.counters.failed(name, error)
            log.error("%s failed", name, exc_info=error)
            news.failed(self._status.events, name, error)

    def join(self) -> None:
        """Waits for the threads, except the calling one."""
        for thread in self.threads:
            if thread.ident != threading.get_ident():
                thread.join()
