"""Progress events and the settings of an open database."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lsmkv_bench.native.latency import Histogram
from lsmkv_bench.session import OPEN_FIELDS, Session
from lsmkv_bench.settings import Settings


def test_open_fields_are_settings() -> None:
    assert set(OPEN_FIELDS) <= {f.name for f in fields(Settings)}


def test_progress_shows_only_latencies_of_the_running_workload(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    settings = Settings(report_interval_seconds=0.0, num=10)
    session = Session("dict", str(tmp_path), settings, events.append)
    driver = session.driver(settings, get={}.get)
    assert driver.hist is not None
    driver.hist.record(50_000_000)
    with session.measured():
        session.tick(1, 2, 0.1)
        session.recording = [Histogram(), Histogram()]
        for hist in session.recording:
            hist.record(1000)
        session.tick(2, 2, 0.1)
    assert "p99" not in events[0]
    assert events[1]["p99"] == pytest.approx(1000, rel=0.04) and events[1]["stalls"] == 0
