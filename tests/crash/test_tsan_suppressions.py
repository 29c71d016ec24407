"""A suppression of ThreadSanitizer names a function by its place; one that moved would be reported again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from treecopy import REPOSITORY

LINES = Path(__file__).with_name("tsan.supp").read_text().splitlines()
OURS = [line.removeprefix("race:lsmkv_ext") for line in LINES if line.startswith("race:lsmkv_ext")]


def demangled(name: str) -> tuple[Path, str]:
    """The module and the function: "_5table_6reader_table_get" is table_get in table/reader."""
    module = REPOSITORY / "lsmkv_ext"
    while match := re.match(r"_(\d+)", name):
        length = int(match[1])
        module /= name[match.end() : match.end() + length]
        name = name[match.end() + length :]
    return module.with_suffix(".pyx"), name[1:]


@pytest.mark.parametrize("name", OURS)
def test_a_suppression_names_a_function(name: str) -> None:
    module, function = demangled(name)
    assert re.search(rf"^cp?def .*\b{function}\(", module.read_text(), re.MULTILINE)


def test_there_are_suppressions() -> None:
    assert OURS
