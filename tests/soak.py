"""How much each test does, and what it came to.

A cut in `make test`, all of it in `make soak` (LSMKV_SOAK=1). Figures go to a file as they arise, so that a soak
that was cut short leaves what it had:  python tests/soak.py  prints them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

SOAK = os.environ.get("LSMKV_SOAK") == "1"
# A factor on the soak sizes, to try out a soak run in minutes.
SCALE = float(os.environ.get("LSMKV_SOAK_SCALE", "1"))
# A factor on the cut, for builds that are many times slower (sanitizers in CI).
CUT = float(os.environ.get("LSMKV_CUT", "1"))

COUNTED = SOAK or os.environ.get("LSMKV_FIGURES") == "1"
FIGURES = Path(__file__).parents[1] / "build" / "figures.jsonl"


def size(cut: int, soak: int) -> int:
    return max(cut, round(soak * SCALE)) if SOAK else max(1, round(cut * CUT))


def step(cut: int) -> int:
    """Every so-manieth place; in a soak every one, at any scale."""
    return 1 if SOAK else round(cut / CUT)


def shards(count: int) -> range:
    """The parts of a test that would be long as one: pytest's workers share them in a soak. A cut is one part."""
    return range(count if SOAK else 1)


def share(cut: int, soak: int, parts: range) -> int:
    """What each of the parts does."""
    return -(-size(cut, soak) // len(parts))


def figure(what: str, outcome: str, **counts: int) -> None:
    """Adds to the line `what` of the summary. Counts of one line are summed, whatever process they are from."""
    if COUNTED:
        # One write to the end of the file: lines of several processes do not mix.
        with open(FIGURES, "ab", buffering=0) as file:
            file.write(json.dumps([what, outcome, counts]).encode() + b"\n")


def start() -> None:
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_bytes(b"")


def summary() -> list[str]:
    totals: dict[tuple[str, str], Counter[str]] = {}
    for line in FIGURES.read_text().splitlines() if FIGURES.exists() else ():
        what, outcome, counts = json.loads(line)
        totals.setdefault((what, outcome), Counter()).update(counts)
    width = max((len(what) for what, _ in totals), default=0)
    return [
        f"{what:<{width}}  {', '.join(f'{n:,} {name}' for name, n in counts.items())}: {outcome}"
        for (what, outcome), counts in sorted(totals.items())
    ]


if __name__ == "__main__":
    print("\n".join(summary()))
