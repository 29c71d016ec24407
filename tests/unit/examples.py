"""The programs in README and docs, and the output they claim.

All ```python blocks of a page run in one namespace (`test_docs_examples.py`). A ```py block needs another program, such
as another store, and is at least compiled. Output stands in comments: beside a `print`, or in the lines below it.
"""

from __future__ import annotations

import gc
import logging
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BESIDE = re.compile(r"^ *print\(.*\) +# (.+)$")
BELOW = re.compile(r"^ *# (.+)$")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def programs(page: Path, language: str) -> list[str]:
    """The blocks of a page in a language."""
    return [code for found, code in BLOCK.findall(page.read_text()) if found == language]


def expected_output(code: str) -> list[str]:
    found: list[str] = []
    printing = False
    for line in code.splitlines():
        if beside := BESIDE.match(line):
            found.append(beside[1])
        elif printing and (below := BELOW.match(line)):
            found.append(below[1])
            continue
        printing = line.lstrip().startswith("print(") and not beside
    return found


def run(code: str, name: str) -> None:
    """Leaves no open database behind, and the logger as it was."""
    logger = logging.getLogger("lsmkv")
    level, handlers = logger.level, list(logger.handlers)
    try:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    finally:
        logger.setLevel(level)
        for handler in set(logger.handlers) - set(handlers):
            logger.removeHandler(handler)
            handler.close()
        gc.collect()
