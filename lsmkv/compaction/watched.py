"""A call that is watched: it runs in a thread of its own, so that its caller can tell meanwhile how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from lsmkv_ext.port.finalization import start_thread
from lsmkv_ext.port.section import section

T = TypeVar("T")

# Seconds between two looks.
INTERVAL = 0.1


def watched(work: Callable[[], T], look: Callable[[], None]) -> T:
    """Returns or raises what `work` does. Calls `look` in this thread until then, and whenever a while has passed.

    If `look` raises, so does this call, while `work` completes in its thread.
    """
    values: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            values.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=section, args=(run,), name="lsmkv-manual", daemon=True)
    try:
        start_thread(thread)
    except RuntimeError:
        return work()  # without the progress
    while thread.is_alive():
        thread.join(INTERVAL)
        if thread.is_alive():
            look()
    if errors:
        # Not through a variable: the error refers to this frame.
        raise errors.pop()
    return values[0]
