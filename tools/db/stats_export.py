"""The STATS file, to which a running database with stats_export=True writes its statistics."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from lsmkv_tool.directory import Directory

MAX_STATS_BYTES = 16 << 20
# The database writes twice a second. An older file comes from a process that has ended.
STALE_SECONDS = 5.0
# Fewer lookups say too little about the share of absent keys.
MIN_LOOKUPS = 1000


@dataclass(frozen=True)
class Sample:
    """One version of the STATS file."""

    pid: int
    time: float
    stats: dict[str, Any]

    @property
    def age(self) -> float:
        return max(0.0, time.time() - self.time)

    @property
    def stale(self) -> bool:
        return self.age > STALE_SECONDS


def read_sample(db: str, keyspace: str = "") -> Sample | None:
    """Return the exported statistics of a keyspace, or None if there are none or a crash damaged them (they are not
    synced).
    """
    from lsmkv.errors import CorruptionError
    from lsmkv.files import read_bounded

    try:
        body = json.loads(read_bounded(str(Directory(db).path / "STATS"), MAX_STATS_BYTES))
        stats = body["keyspaces"][keyspace] if keyspace else body["stats"]
        return Sample(int(body["pid"]), float(body["time"]), dict(stats))
    except (FileNotFoundError, CorruptionError, ValueError, KeyError, TypeError):
        return None


def observed_fpr(db: str, keyspace: str = "") -> dict[int, float]:
    """Return the observed false positive rate of each level that has one."""
    found = read_sample(db, keyspace)
    if found is None:
        return {}
    levels = ((level["level"], level["filter"]["observed_fpr"]) for level in found.stats["levels"])
    return {level: rate for level, rate in levels if rate is not None}


def absent_share(db: str, keyspace: str = "") -> float | None:
    """Return the share of lookups that found nothing, or None if there were too few."""
    found = read_sample(db, keyspace)
    if found is None or found.stats["reads"]["gets"] < MIN_LOOKUPS:
        return None
    return float(found.stats["reads"]["missing"] / found.stats["reads"]["gets"])
