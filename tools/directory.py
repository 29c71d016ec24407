"""A database directory. The tool follows no symbolic link and opens only regular files with lsmkv's names."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from lsmkv_tool.exits import CannotOpen, open_errors


@dataclass(frozen=True)
class Entry:
    name: str
    kind: str  # a value of lsmkv.filenames.FileKind, or "other" for anything that is not lsmkv's
    number: int
    size: int
    mtime_ns: int


def parse_name(name: str) -> tuple[str, int]:
    """Return the kind and the number of a file by its name, or ("other", 0)."""
    from lsmkv.filenames import parse

    found = parse(name)
    return (found[0].value, found[1]) if found else ("other", 0)


def refuse_symlink(path: str) -> None:
    if os.path.islink(path):
        raise CannotOpen(f"{path} is a symbolic link; lsmkv-tool does not follow links", file=path)


def refuse_existing(path: str, hint: str) -> None:
    if os.path.lexists(path):
        raise CannotOpen(f"{path} exists; {hint}", file=path)


def stat_file(path: str) -> os.stat_result:
    """Return the lstat of a regular file; raise CannotOpen for anything else."""
    refuse_symlink(path)
    with open_errors(path):
        found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise CannotOpen(f"{path} is not a regular file", file=path)
    return found


def is_directory(path: str) -> bool:
    with open_errors(path):
        return stat.S_ISDIR(os.stat(path).st_mode)


@contextlib.contextmanager
def skip_dropped(path: str, named: Container[str]) -> Iterator[None]:
    """Ignore CannotOpen for a file that a running database removed, unless the user named that file."""
    try:
        yield
    except CannotOpen:
        if path in named or os.path.lexists(path):
            raise


class Directory:
    """The directory of one database."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        if not is_directory(path):
            raise CannotOpen(f"{path} is not a directory", file=path)

    def entries(self) -> list[Entry]:
        out = []
        with open_errors(str(self.path)), os.scandir(self.path) as found:
            for item in found:
                try:
                    info = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # a running database removed it
                kind, number = parse_name(item.name)
                if not stat.S_ISREG(info.st_mode):
                    kind, number = "other", 0
                out.append(Entry(item.name, kind, number, info.st_size, info.st_mtime_ns))
        return sorted(out, key=lambda e: (e.kind, e.number, e.name))

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries() if entry.kind == kind]

    def paths(self, kind: str) -> list[str]:
        return [str(self.path / entry.name) for entry in self.of_kind(kind)]

    def database_files(self) -> list[Entry]:
        """Return lsmkv's files; raise CannotOpen if there are none."""
        found = [entry for entry in self.entries() if entry.kind != "other"]
        if not found:
            raise CannotOpen(f"{self.path} is not a database", file=str(self.path))
        return found

    def file(self, name: str) -> str:
        """Return the path of the regular file `name`."""
        path = str(self.path / name)
        stat_file(path)
        return path
