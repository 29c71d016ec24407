"""A database's folder as the tool may touch it: names inside it, no symlink followed, known kinds only."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from lsmkv_tool.exits import CannotOpen, Usage, opening


@dataclass(frozen=True)
class Entry:
    name: str
    kind: str  # one of lsmkv.filenames.Kind, or "other": a stranger, or not a regular file
    number: int
    size: int
    mtime_ns: int


def kind_of(name: str) -> tuple[str, int]:
    from lsmkv.filenames import parse

    found = parse(name)
    return (found[0].value, found[1]) if found else ("other", 0)


def regular(path: str | os.PathLike[str]) -> os.stat_result:
    """lstat of a plain file; anything else (a symlink, a device, a folder) cannot be opened."""
    text = os.fspath(path)
    with opening(text):
        found = os.lstat(text)
    if stat.S_ISLNK(found.st_mode):
        raise CannotOpen(f"{text} is a symbolic link; the tool follows none", file=text)
    if not stat.S_ISREG(found.st_mode):
        raise CannotOpen(f"{text} is not a regular file", file=text)
    return found


def is_folder(path: str) -> bool:
    with opening(path):
        return stat.S_ISDIR(os.stat(path).st_mode)


class Folder:
    """The directory of one database. Every path it hands out names a regular file directly inside it."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        if not is_folder(path):
            raise CannotOpen(f"{path} is not a database folder", file=path)

    def entries(self) -> list[Entry]:
        out = []
        with opening(str(self.path)), os.scandir(self.path) as found:
            for item in found:
                try:
                    info = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # the owner removed it between the listing and the look
                kind, number = kind_of(item.name)
                if not stat.S_ISREG(info.st_mode):
                    kind, number = "other", 0
                out.append(Entry(item.name, kind, number, info.st_size, info.st_mtime_ns))
        return sorted(out, key=lambda e: (e.kind, e.number, e.name))

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries() if entry.kind == kind]

    def file(self, name: str) -> str:
        if os.sep in name or name in ("", ".", ".."):
            raise Usage(f"{name!r} is not a name inside {self.path}")
        path = str(self.path / name)
        regular(path)
        return path
