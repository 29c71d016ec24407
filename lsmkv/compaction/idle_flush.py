"""Flushes large values once nothing is written any more.

Overwritten values become garbage that a collection sees only when a flush has put the new ones into tables. Without
this, an idle database would keep a write buffer of garbage on disk.
"""

from __future__ import annotations

from contextlib import suppress

from lsmkv.compaction.flush import Flusher
from lsmkv.errors import ClosedError, ReadOnlyError
from lsmkv.version.version_set import VersionSet

IDLE_SECONDS = 1.0
# Between two looks at a database that is idle but has too few values to flush.
LONGEST_PAUSE = 60.0
# A value log is flushed from this share of its largest size on, but no smaller one: each flush writes a table.
SHARE = 8
LEAST_BYTES = 1 << 20


class IdleFlush:
    """That of one database. A task calls `run` after each new value log."""

    def __init__(self, versions: VersionSet, flusher: Flusher) -> None:
        self._versions = versions
        self._engine = versions.engine
        self._flusher = flusher
        self._seen = -1  # the sequence number at the last look

    def run(self, pause: float) -> float:
        """Flushes the value log if it is worth it and nothing was written since the last look. Returns the seconds
        until the next look, 0 if there is no value log to look at; `pause` is what the last call returned.
        """
        values = self._versions.values.active
        if values is None or self._engine.refusal is not None:
            return 0.0
        seen, self._seen = self._seen, self._engine.last_seq
        if self._seen != seen:
            return IDLE_SECONDS
        if values.size < max(self._engine.value_capacity // SHARE, LEAST_BYTES):
            return min(max(pause * 2, IDLE_SECONDS), LONGEST_PAUSE)
        with suppress(ClosedError, ReadOnlyError):  # since the look
            self._flusher.flush(wait=False)
        return 0.0
