"""The STATS file: statistics of an open database for other processes, such as `lsmkv-tool top`."""

from __future__ import annotations

import json
import logging
import os
import time

from lsmkv import filenames
from lsmkv.files import replace_file
from lsmkv.stats.metrics import Stats

log = logging.getLogger("lsmkv")


def write_stats(directory: str, stats: Stats) -> None:
    """Replaces STATS. A failure is logged: statistics are not worth an error."""
    body = {"pid": os.getpid(), "time": time.time(), "stats": stats.to_dict()}
    try:
        replace_file(directory, filenames.STATS, json.dumps(body, default=str).encode(), durable=False)
    except OSError as error:
        log.warning("%s: cannot write %s: %s", directory, filenames.STATS, error)
