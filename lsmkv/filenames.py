"""Names of the files in a database directory.

Only files whose name `parse` recognizes are opened because another file names them, or deleted.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from enum import Enum

from lsmkv.errors import IOError
from lsmkv_ext.wal import sync_watermark

CURRENT = "CURRENT"
LOCK = "LOCK"
OPTIONS = "OPTIONS"
RESERVE = "RESERVE"
STATS = "STATS"
SYNCED = sync_watermark.NAME
LOST = "lost"  # directory where repair puts damaged files

MAX_FILE_NUMBER = (1 << 62) - 1


class FileKind(Enum):
    TABLE = "table"
    LOG = "log"
    VALUE_LOG = "value log"
    MANIFEST = "manifest"
    CURRENT = "current"
    LOCK = "lock"
    OPTIONS = "options"
    RESERVE = "reserve"
    SYNCED = "synced"
    STATS = "stats"
    TEMPORARY = "temporary"


_FIXED = {
    CURRENT: FileKind.CURRENT,
    LOCK: FileKind.LOCK,
    OPTIONS: FileKind.OPTIONS,
    RESERVE: FileKind.RESERVE,
    STATS: FileKind.STATS,
    SYNCED: FileKind.SYNCED,
}
_TEMPORARY = frozenset({CURRENT + ".tmp", OPTIONS + ".tmp", STATS + ".tmp"})
_NUMBER = r"([0-9]{6}|[1-9][0-9]{6,18})"
_NUMBERED = re.compile(rf"(?:{_NUMBER}\.(sst|wal|vlog|wal\.tmp)|MANIFEST-{_NUMBER})\Z", re.ASCII)
_SUFFIXES = {"sst": FileKind.TABLE, "wal": FileKind.LOG, "vlog": FileKind.VALUE_LOG, "wal.tmp": FileKind.TEMPORARY}


def directory_path(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """The absolute path: a later chdir must not move the database. Raises IOError for the empty path, which would be
    the current directory.
    """
    name = os.fsdecode(path)
    if not name:
        raise IOError(errno.ENOENT, "the path is empty", name)
    return os.path.abspath(name)


def table_name(number: int) -> str:
    return f"{number:06d}.sst"


def log_name(number: int) -> str:
    return f"{number:06d}.wal"


def value_log_name(number: int) -> str:
    return f"{number:06d}.vlog"


def manifest_name(number: int) -> str:
    return f"MANIFEST-{number:06d}"


def table_path(directory: str, number: int) -> str:
    return os.path.join(directory, table_name(number))


def log_path(directory: str, number: int) -> str:
    return os.path.join(directory, log_name(number))


def value_log_path(directory: str, number: int) -> str:
    return os.path.join(directory, value_log_name(number))


def manifest_path(directory: str, number: int) -> str:
    return os.path.join(directory, manifest_name(number))


def parse(name: str) -> tuple[FileKind, int] | None:
    """(kind, number) of a file of ours, None for anything else. The number is 0 for kinds without one."""
    if name in _FIXED:
        return _FIXED[name], 0
    if name in _TEMPORARY:
        return FileKind.TEMPORARY, 0
    match = _NUMBERED.match(name)
    if match is None:
        return None
    plain, suffix, manifest = match.groups()
    number = int(plain or manifest)
    if not 1 <= number <= MAX_FILE_NUMBER:
        return None
    if manifest:
        return FileKind.MANIFEST, number
    return _SUFFIXES[suffix], number


def list_directory(directory: str) -> list[tuple[str, FileKind, int]]:
    """Every regular file of ours in the directory, by number. Symbolic links are not ours."""
    return _list(directory, lambda entry: entry.is_file(follow_symlinks=False))


def list_irregular(directory: str) -> list[tuple[str, FileKind, int]]:
    """Everything with a name of ours that is neither a regular file nor a symbolic link, by number."""
    return _list(directory, lambda entry: not entry.is_file(follow_symlinks=False) and not entry.is_symlink())


def _list(directory: str, wanted: Callable[[os.DirEntry[str]], bool]) -> list[tuple[str, FileKind, int]]:
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            parsed = parse(entry.name)
            if parsed is not None and wanted(entry):
                found.append((entry.name, *parsed))
    found.sort(key=lambda item: (item[2], item[0]))
    return found
