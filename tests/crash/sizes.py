"""How much each test does: a cut in `make test`, all of it in `make soak` (LSMKV_SOAK=1)."""

from __future__ import annotations

import os

SOAK = os.environ.get("LSMKV_SOAK") == "1"
# A factor on the soak sizes, to try out a soak run in minutes.
SCALE = float(os.environ.get("LSMKV_SOAK_SCALE", "1"))
# A factor on the cut, for builds that are many times slower (sanitizers in CI).
CUT = float(os.environ.get("LSMKV_CUT", "1"))


def size(cut: int, soak: int) -> int:
    return max(cut, round(soak * SCALE)) if SOAK else max(1, round(cut * CUT))


def step(cut: int) -> int:
    """Every so-manieth place; in a soak every one, at any scale."""
    return 1 if SOAK else round(cut / CUT)


FIGURES: list[tuple[str, str]] = []


def figure(what: str, value: object) -> None:
    """Adds a line to the summary that pytest prints at its end."""
    FIGURES.append((what, str(value)))
