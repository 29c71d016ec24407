"""How much each test does, and what it came to.

A cut in `make test`, all of it in `make soak` (LSMKV_SOAK=1). Figures go to a file as they arise, so that a soak
that was cut short leaves what it had:  python tests/soak.py  prints them.

An interrupted soak of the same code continues where it stopped: tests that passed are not run again, and their figures
stay. So a soak may be run in slices; none of its tests takes an hour. Removing build/soak-passed starts it anew.
"""

from __future__ import annotations

import hashlib
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
ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "build" / "figures.jsonl"
# The tests that passed, below the state of the code that they ran with.
PASSED = ROOT / "build" / "soak-passed"


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


def append(path: Path, line: str) -> None:
    """One write to the end of the file: lines of several processes do not mix."""
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def figure(what: str, outcome: str, **counts: int) -> None:
    """Adds to the line `what` of the summary. Counts of one line are summed, whatever process they are from."""
    if COUNTED:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        append(FIGURES, json.dumps([what, outcome, counts, test]))


# Slices ------------------------------------------------------------------------------------------------------


def code_state() -> str:
    """Changes with the code that a soak tries out, and with its size."""
    digest = hashlib.sha256(f"{SCALE}".encode())
    for folder in ("lsmkv", "lsmkv_ext", "tests"):
        for path in sorted((ROOT / folder).rglob("*.p*")):
            if path.suffix in (".py", ".pyx", ".pxd"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def passed() -> set[str]:
    """The tests that an interrupted soak of this code has done."""
    lines = PASSED.read_text().splitlines() if SOAK and PASSED.exists() else []
    return set(lines[1:]) if lines[:1] == [code_state()] else set()


def note_passed(test: str) -> None:
    append(PASSED, test)


def start() -> None:
    """Keeps the figures of tests that passed, and of no others: those run again."""
    FIGURES.parent.mkdir(exist_ok=True)
    done = passed()
    lines = FIGURES.read_text().splitlines() if done and FIGURES.exists() else []
    FIGURES.write_text("".join(f"{line}\n" for line in lines if json.loads(line)[3] in done))
    if SOAK and not done:
        PASSED.write_text(code_state() + "\n")


def summary() -> list[str]:
    totals: dict[tuple[str, str], Counter[str]] = {}
    for line in FIGURES.read_text().splitlines() if FIGURES.exists() else ():
        what, outcome, counts, _ = json.loads(line)
        totals.setdefault((what, outcome), Counter()).update(counts)
    width = max((len(what) for what, _ in totals), default=0)
    return [
        f"{what:<{width}}  {', '.join(f'{n:,} {name}' for name, n in counts.items())}: {outcome}"
        for (what, outcome), counts in sorted(totals.items())
    ]


if __name__ == "__main__":
    print("\n".join(summary()))
