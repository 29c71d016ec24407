"""What a database says about itself beside its tables: the OPTIONS file, and the STATS its owner exports."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsmkv_tool.directory import Folder

if TYPE_CHECKING:
    from lsmkv.options import Options

MAX_STATS_BYTES = 16 << 20
# The owner writes twice a second; a file older than this is from a process that ended.
STALE_SECONDS = 5.0


def options(folder: Folder) -> Options:
    """The options the database was last opened with; the defaults where there is no such file."""
    from lsmkv.version.manifest import read_bounded
    from lsmkv.options import MAX_OPTIONS_BYTES, Options

    path = str(folder.path / "OPTIONS")
    try:
        return Options.decode(read_bounded(path, MAX_OPTIONS_BYTES), path)
    except FileNotFoundError:
        return Options()


@dataclass(frozen=True)
class Sample:
    """One state of the STATS file."""

    pid: int
    time: float
    stats: dict[str, Any]

    @property
    def age(self) -> float:
        return max(0.0, time.time() - self.time)

    @property
    def stale(self) -> bool:
        return self.age > STALE_SECONDS


def sample(db: str) -> Sample | None:
    """What the owner last exported; None where there is nothing, or nothing readable (it is never synced)."""
    from lsmkv.errors import CorruptionError
    from lsmkv.version.manifest import read_bounded

    try:
        body = json.loads(read_bounded(str(Folder(db).path / "STATS"), MAX_STATS_BYTES))
        return Sample(int(body["pid"]), float(body["time"]), dict(body["stats"]))
    except (FileNotFoundError, CorruptionError, ValueError, KeyError, TypeError):
        return None


def observed_fpr(db: str) -> dict[int, float]:
    """Level -> the rate lookups saw, where the owner exports it and has seen any."""
    found = sample(db)
    if found is None:
        return {}
    levels = ((level["level"], level["filter"]["observed_fpr"]) for level in found.stats["levels"])
    return {level: rate for level, rate in levels if rate is not None}


def absent_share(db: str) -> float | None:
    """Share of lookups that found nothing; None before there were enough to say."""
    found = sample(db)
    if found is None or found.stats["reads"]["gets"] < 1000:
        return None
    return float(found.stats["reads"]["missing"] / found.stats["reads"]["gets"])
