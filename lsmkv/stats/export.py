"""The STATS file: statistics of an open database for other processes, such as `lsmkv-tool top`."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping

from lsmkv import filenames
from lsmkv.files import replace_file
from lsmkv.stats.metrics import Stats

log = logging.getLogger("lsmkv")


def write_stats(directory: str, stats: Stats, keyspaces: Mapping[str, Stats]) -> None:
    """Replaces STATS: the statistics of the default keyspace, and those of the named ones. A failure is logged:
    statistics are not worth an error.
    """
    body: dict[str, object] = {"pid": os.getpid(), "time": time.time(), "stats": stats.to_dict()}
    if keyspaces:
        body["keyspaces"] = {name: each.to_dict() for name, each in keyspaces.items()}
    try:
        replace_file(directory, filenames.STATS, json.dumps(body, default=str).encode(), durable=False)
    except OSError as error:
        log.warning("%s: cannot write %s: %s", directory, filenames.STATS, error)
