"""The registry of value logs."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import lsmkv
from lsmkv.version.value_logs import ValueLogs
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.values.writer import ValueWriter


class GrowingLog:
    """A value log during whose look-up another thread opens one more."""

    def __init__(self, number: int, logs: ValueLogs) -> None:
        self.number, self._logs = number, logs

    @property
    def size(self) -> int:
        self.other = GrowingLog(self.number + 100, self._logs)
        self._logs._open[self.number + 100] = cast(Any, self.other)
        return 10


def test_totals_while_value_logs_are_opened(tmp_path: Path) -> None:
    engine = SimpleNamespace(memtables=[], values=None)
    logs = ValueLogs(str(tmp_path), FdCache(4), cast(Any, engine))
    found = [GrowingLog(number, logs) for number in range(3)]
    for log in found:
        logs._open[log.number] = cast(Any, log)
    assert logs.totals([]) == {"files": 3, "bytes": 30, "live_bytes": 0, "garbage_bytes": 30}


def test_a_new_value_log_that_cannot_be_opened_or_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is raised, not that of the removal."""

    def refuse(path: object) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(os, "unlink", refuse)
    probe = os.open(tmp_path, os.O_RDONLY)
    os.close(probe)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 1, limits[1]))  # the writer's descriptor is the last
        with pytest.raises(lsmkv.IOError, match="Too many open files"):
            ValueWriter(tmp_path / "000001.vlog", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
