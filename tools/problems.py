"""Findings as text: a problem without the place that stands beside it."""

from __future__ import annotations

import os
import re

_PLACE = re.compile(r" \((?P<file>[^()]+?)(?:, offset (?P<offset>\d+))?\)\Z")


def split_place(problem: str, file: str) -> tuple[str, int | None]:
    """Take `(file, offset)` from the end of a problem of `file`. Return the rest, and the offset if there is one."""
    found = _PLACE.search(problem)
    if found is None or os.path.basename(found["file"]) != os.path.basename(file):
        return problem, None
    return problem[: found.start()], None if found["offset"] is None else int(found["offset"])


def value_problem(file: str, what: str) -> str:
    """Return what is wrong with a value: the value log, the place in it, and the problem."""
    problem, offset = split_place(what, file)
    place = "" if offset is None else f", offset {offset}"
    return f"{os.path.basename(file)}{place}: {problem}"
