"""The syntax of `--benchmarks`: `name`, `name[X3-W1]` (one warm-up, three repeats), `name:flag=value:...`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_STEP = re.compile(r"^(?P<name>[A-Za-z0-9_]+)(\[(?P<suffix>[^\]]*)\])?(?P<flags>(:[^:]+)*)$")


@dataclass(frozen=True)
class Step:
    name: str
    repeat: int = 1
    warmup: int = 0
    flags: dict[str, str] = field(default_factory=dict)
    title: str = ""

    @property
    def label(self) -> str:
        """The row's name in the tables: the title, or the name and its flags."""
        return self.title or ":".join([self.name, *(f"{k}={v}" for k, v in self.flags.items())])


def parse_steps(text: str) -> list[Step]:
    steps = [parse_step(part) for part in text.split(",") if part.strip()]
    if not steps:
        raise ValueError("no benchmarks")
    return steps


def parse_step(text: str) -> Step:
    match = _STEP.match(text.strip())
    if match is None:
        raise ValueError(f"not a benchmark: {text!r} (use name, name[X3-W1] or name:flag=value)")
    repeat, warmup = _suffix(match["suffix"], text)
    flags = dict(_flag(part, text) for part in match["flags"].split(":") if part)
    title = flags.pop("title", "")
    return Step(match["name"].lower(), repeat, warmup, flags, title)


def _suffix(suffix: str | None, text: str) -> tuple[int, int]:
    repeat, warmup = 1, 0
    for part in (suffix or "").split("-"):
        letter, digits = part[:1].upper(), part[1:]
        if not part:
            continue
        if letter not in "XW" or not digits.isdigit():
            raise ValueError(f"{text!r}: {part!r} is neither X<repeats> nor W<warm-ups>")
        if letter == "X":
            repeat = int(digits)
        else:
            warmup = int(digits)
    if repeat < 1:
        raise ValueError(f"{text!r}: X must be at least 1")
    return repeat, warmup


def _flag(part: str, text: str) -> tuple[str, str]:
    name, eq, value = part.partition("=")
    if not eq:
        raise ValueError(f"{text!r}: {part!r} is not flag=value")
    return name, value
