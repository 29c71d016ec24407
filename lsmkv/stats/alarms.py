"""Watches the alarms of a database, and reports those that have gone on or off since the last look."""

from __future__ import annotations

import logging
import time

from lsmkv.compaction.scheduler import Scheduler
from lsmkv.events import Event
from lsmkv.stats.introspect import stats_by_name
from lsmkv.stats.metrics import Alarm

# Seconds between two looks: each reads all statistics.
INTERVAL = 1.0
# These are logged as warnings. The others say that memory or time is spent for little.
SERIOUS = frozenset({"filter_wrong", "filter_damaged"})


class AlarmWatch:
    """Holds the scheduler, and never the database. Only the thread of the events calls it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._on: dict[tuple[str, str, int | None], Alarm] = {}
        self._next = 0.0

    def look(self) -> list[Event]:
        if time.monotonic() < self._next or self._scheduler.status.stopping:
            return []
        self._next = time.monotonic() + INTERVAL
        found = {
            (keyspace, alarm.name, alarm.level): alarm
            for keyspace, stats in stats_by_name(self._scheduler).items()
            for alarm in stats.alarms
        }
        before, self._on = self._on, found
        fresh = [self._event(key[0], alarm, True) for key, alarm in found.items() if key not in before]
        gone = [self._event(key[0], alarm, False) for key, alarm in before.items() if key not in found]
        return fresh + gone

    def _event(self, keyspace: str, alarm: Alarm, on: bool) -> Event:
        details = {
            "keyspace": keyspace,
            "name": alarm.name,
            "on": on,
            "level": alarm.level,
            "value": alarm.value,
            "limit": alarm.limit,
        }
        level = logging.WARNING if on and alarm.name in SERIOUS else logging.INFO
        text = f"alarm: {alarm.message}" if on else f"no longer: {alarm.message}"
        return Event("alarm", self._scheduler.versions.directory, text, level, details)
