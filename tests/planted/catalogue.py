"""The known mistakes and the instruments, as `mistakes.toml` names them."""

from __future__ import annotations

import hashlib
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

from treecopy import REPOSITORY

_CATALOGUE = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text())
_INTEGRATIONS = tomllib.loads(Path(__file__).with_name("integration_mistakes.toml").read_text())

# Environment and arguments of pytest, by name: words such as NAME=value lead.
INSTRUMENTS: dict[str, list[str]] = {
    name: shlex.split(line) for name, line in (_CATALOGUE["instruments"] | _INTEGRATIONS["instruments"]).items()
}


@dataclass(frozen=True)
class Mistake:
    name: str
    file: str
    changes: tuple[tuple[str, str], ...]  # old and new text
    caught_by: tuple[str, ...]

    @property
    def of_integration(self) -> bool:
        """Whether its instruments need the environment of `make test-integrations`."""
        return self.name in _INTEGRATIONS["mistakes"]

    @property
    def compiled(self) -> bool:
        return not self.file.endswith(".py")

    def digest(self) -> str:
        """Of the mistake and of the file it goes into: when it changes, an old result says nothing."""
        text = (REPOSITORY / self.file).read_text()
        return hashlib.sha256(repr((self, text)).encode()).hexdigest()[:16]

    def plant(self, tree: Path) -> None:
        """Raises ValueError unless each old text occurs exactly once."""
        path = tree / self.file
        text = path.read_text()
        for old, new in self.changes:
            if text.count(old) != 1:
                raise ValueError(f"{self.name!r}: {text.count(old)} places in {self.file} have the text {old!r}")
            text = text.replace(old, new)
        path.write_text(text)


def _mistake(name: str, entry: dict) -> Mistake:
    changes = [(entry["old"], entry["new"]), *entry.get("also", [])]
    return Mistake(name, entry["file"], tuple((old, new) for old, new in changes), tuple(entry["caught_by"]))


MISTAKES: dict[str, Mistake] = {
    name: _mistake(name, entry) for name, entry in (_CATALOGUE["mistakes"] | _INTEGRATIONS["mistakes"]).items()
}
