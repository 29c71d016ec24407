"""Back pressure: how much writers are delayed while compaction is behind, and when they are stopped.

`pressure` decides; `Stalls` keeps the pressure in force and applies and reports its changes. Its fields are guarded
by the version set's `lock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lsmkv.compaction import news
from lsmkv.compaction.counters import Counters
from lsmkv.compaction.picker import pending_bytes
from lsmkv.events import Events
from lsmkv.options import Options
from lsmkv.version.version import Version

# The delay per KiB written grows from the first to the last as L0 nears the stop trigger.
FIRST_DELAY_NS = 500
LAST_DELAY_NS = 500_000


@dataclass(frozen=True)
class Pressure:
    delay_ns: int  # per KiB written
    stopped: bool


NO_PRESSURE = Pressure(0, False)


def pressure(version: Version, options: Options) -> Pressure:
    """The pressure that a tree calls for. It grows smoothly with the tables in L0 and with the pending bytes."""
    count = len(version.levels[0])
    span = options.l0_stop_trigger - options.l0_slowdown_trigger + 1
    by_count = (count - options.l0_slowdown_trigger + 1) / span
    # A tree in good order has fewer pending bytes than one merge of L0 into a level of the wanted ratio.
    soft = options.l0_slowdown_trigger * options.write_buffer_size * options.level_size_ratio
    by_debt = pending_bytes(version, options) / soft - 1.0
    share = min(max(by_count, by_debt, 0.0), 1.0)
    stopped = count >= options.l0_stop_trigger
    if share <= 0.0:
        return Pressure(0, stopped)
    return Pressure(int(FIRST_DELAY_NS * (LAST_DELAY_NS / FIRST_DELAY_NS) ** share), stopped)


def state(pressure: Pressure) -> str:
    """Its effect on writers: "none", "slowdown" or "stop"."""
    return "stop" if pressure.stopped else "slowdown" if pressure.delay_ns else "none"


class Stalls:
    """The pressure in force. Publishes its changes to `events`. `apply` passes them on to the writers."""

    def __init__(self, apply: Callable[[Pressure], None], events: Events) -> None:
        self.pressure = NO_PRESSURE
        self._apply = apply
        self._events = events
        self._stopped_since = 0

    @property
    def stopped(self) -> bool:
        return self.pressure.stopped

    def update(self, now: Pressure, counters: Counters) -> None:
        before = self.pressure
        if now == before:
            return
        self.pressure = now
        if now.delay_ns and not before.delay_ns:
            counters.slowdowns += 1
        if now.stopped and not before.stopped:
            counters.stops += 1
            self._stopped_since = time.monotonic_ns()
        stopped_ns = time.monotonic_ns() - self._stopped_since if before.stopped else 0
        if before.stopped and not now.stopped:
            counters.stopped(stopped_ns, count=0)
        self._apply(now)
        news.pressed(self._events, state(before), state(now), now.delay_ns, stopped_ns)
