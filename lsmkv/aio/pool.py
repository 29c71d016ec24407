"""The threads of one database that run the calls which may wait."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from lsmkv.errors import ClosedError, ForkError

T = TypeVar("T")
P = ParamSpec("P")


# Calls without a thread after which a task yields to the loop: a task that never waits would block all others.
STREAK = 32


class Pool:
    """Runs calls in at most `threads` threads, first come, first served."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="lsmkv-aio")
        self._pid = os.getpid()
        self._pending: set[Future[Any]] = set()
        self._last: Future[None] | None = None  # the close
        self._streak = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in a thread. A cancellation drops a call that has not begun; one that has completes."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._pid != os.getpid():
            raise ForkError("this database was opened before a fork: open it again in the child")
        if self._last is not None:
            raise ClosedError("the database is closed")
        context = contextvars.copy_context()
        future: Future[T] = self._executor.submit(partial(context.run, partial(function, *args, **kwargs)))
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def gives_way(self) -> bool:
        """Whether the caller should let other tasks run. Call it after each call that took no thread."""
        self._streak += 1
        return self._streak % STREAK == 0

    async def close(self, last: Callable[[], None]) -> None:
        """Wait for all calls, run `last`, and end the threads. A cancellation ends the wait, not the close."""
        if self._pid != os.getpid():
            return  # the threads are those of the parent
        if self._last is None:
            # The executor starts calls in order: when `_finish` runs, all pending calls have started, so it waits for
            # none that needs its thread.
            self._last = self._executor.submit(_finish, set(self._pending), last)
            self._executor.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._last))


def _finish(pending: set[Future[Any]], last: Callable[[], None]) -> None:
    concurrent.futures.wait(pending)
    last()


class OneAtATime:
    """Calls on an object that one thread at a time may use. A call that was cancelled while it ran still counts."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._lock = threading.Lock()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in a thread, while no other call on the object runs. Waiting calls run in any order."""
        return await self.pool.run(self._locked, partial(function, *args, **kwargs))

    def _locked(self, call: Callable[[], T]) -> T:
        with self._lock:
            return call()

    def begin(self) -> bool:
        """Whether the caller may use the object now; it then calls `end`."""
        return self._lock.acquire(blocking=False)

    def end(self) -> None:
        self._lock.release()
