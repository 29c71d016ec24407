"""The databases that are open in this process. They are closed at interpreter exit. A forked child forgets them: there
the engine refuses every call.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Protocol

log = logging.getLogger("lsmkv")


class Handle(Protocol):
    def _close_at_exit(self) -> None: ...


# GIL-protected: _open
_open: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()


def register(handle: Handle) -> None:
    _open[id(handle)] = handle


def unregister(handle: Handle) -> None:
    _open.pop(id(handle), None)


def _at_exit() -> None:
    for ref in _open.valuerefs():  # one step: daemon threads may still open and close databases
        handle = ref()
        if handle is None:
            continue
        try:
            handle._close_at_exit()
        except Exception:
            log.exception("closing a database at exit failed")


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_open.clear)
