"""The progress of a long run. An interrupted run continues from there, unless the source has changed since."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "build" / "progress"


@cache
def source_digest() -> str:
    """Changes with every source file of the two planes."""
    digest = hashlib.sha256()
    for part in ("lsmkv", "lsmkv_ext"):
        for path in sorted((REPOSITORY / part).rglob("*")):
            if path.suffix in (".py", ".pyx", ".pxd"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Progress:
    def __init__(self, what: str) -> None:
        self._path = FOLDER / f"{what.replace(' ', '-').replace('/', '-')}.json"

    def load(self) -> int:
        """How much was done; 0 for a new run."""
        if not self._path.exists():
            return 0
        source, done = json.loads(self._path.read_text())
        return int(done) if source == source_digest() else 0

    def store(self, done: int) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        half = self._path.with_suffix(".tmp")
        half.write_text(json.dumps([source_digest(), done]))
        half.rename(self._path)

    def clear(self) -> None:
        """The run is complete: the next one starts from the beginning."""
        self._path.unlink(missing_ok=True)
