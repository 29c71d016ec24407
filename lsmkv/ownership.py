"""Which files of a directory are ours. Names prove little: other programs also use 000005.sst, MANIFEST-000001 or
OPTIONS.

A directory whose CURRENT is ours is a database. Every file in it with a name of ours belongs to it, damaged or not.
Without such a CURRENT, a file is ours if its contents show it.
"""

from __future__ import annotations

import errno
import os
import re

from lsmkv import filenames
from lsmkv.errors import CorruptionError, IOError
from lsmkv.filenames import FileKind
from lsmkv.files import open_to_read, read_bounded
from lsmkv.options import MAX_OPTIONS_BYTES, Options
from lsmkv.reserve import HEAD
from lsmkv.version.current import MAX_CURRENT_BYTES
from lsmkv.version.manifest import MAGIC
from lsmkv_ext.wal.sync_watermark import damaged_offsets

TABLE_MAGIC = b"lsmkvSST"  # the last bytes of a table
LOG_MAGIC = b"lsmkvlog"  # the first ones of a log
VALUE_LOG_MAGIC = b"lsmkvVLG"  # the first ones of a value log
WATERMARK_BYTES = 4096
STATS_BEGINS = b'{"pid": '
OUR_CURRENT = re.compile(rb"MANIFEST-[0-9]+ ")  # where LevelDB's has a line break


def is_database(directory: str) -> bool:
    """Whether CURRENT is ours. Bytes after the manifest's name may be damaged."""
    try:
        current = read_bounded(os.path.join(directory, filenames.CURRENT), MAX_CURRENT_BYTES)
    except (FileNotFoundError, CorruptionError):
        return False
    return OUR_CURRENT.match(current) is not None


def recognized(directory: str, name: str, kind: FileKind) -> bool:
    """Whether the contents show that the file is ours. An empty or missing file counts: nothing can be lost."""
    path = os.path.join(directory, name)
    try:
        size = os.lstat(path).st_size
        return size == 0 or _contents_are_ours(path, name, kind, size)
    except FileNotFoundError:
        return True
    except CorruptionError:
        return False


def _contents_are_ours(path: str, name: str, kind: FileKind, size: int) -> bool:
    if kind is FileKind.CURRENT:
        return is_database(os.path.dirname(path))
    if kind is FileKind.TABLE:
        return _bytes_at(path, max(size - len(TABLE_MAGIC), 0), len(TABLE_MAGIC)) == TABLE_MAGIC
    if kind is FileKind.LOG or name.endswith(".wal.tmp"):
        return _bytes_at(path, 0, len(LOG_MAGIC)) == LOG_MAGIC
    if kind is FileKind.VALUE_LOG:
        return _begins(path, VALUE_LOG_MAGIC)
    if kind is FileKind.MANIFEST:
        return _begins(path, MAGIC)
    if kind is FileKind.SYNCED:
        return size == WATERMARK_BYTES and not damaged_offsets(path)
    if name.startswith(filenames.CURRENT):
        return _begins(path, b"MANIFEST-")
    if name.startswith(filenames.OPTIONS):
        return Options.decode(read_bounded(path, MAX_OPTIONS_BYTES), path) is not None
    if kind is FileKind.RESERVE:
        return _begins(path, HEAD)
    if name.startswith(filenames.STATS):
        return _bytes_at(path, 0, len(STATS_BEGINS)) == STATS_BEGINS
    return False


def _bytes_at(path: str, offset: int, n: int) -> bytes:
    with open_to_read(path) as file:
        file.seek(offset)
        return file.read(n)


def _begins(path: str, magic: bytes) -> bool:
    """Whether the file begins with `magic`, or with the part of it or the zeros that a power cut during creation
    leaves.
    """
    return magic.startswith(_bytes_at(path, 0, len(magic)).rstrip(b"\0"))


def refuse_foreign_files(directory: str) -> None:
    """Raises IOError if creating a database in the directory would remove or replace files of other programs."""
    for name, _, _ in filenames.list_irregular(directory):
        raise IOError(errno.EEXIST, "not a regular file, and its name is one of ours", os.path.join(directory, name))
    if is_database(directory):
        return
    for name, kind, _ in filenames.list_directory(directory):
        # LOCK is never written to.
        if kind is not FileKind.LOCK and not recognized(directory, name, kind):
            path = os.path.join(directory, name)
            raise IOError(errno.EEXIST, "there is no database, and the file is not recognized as ours", path)
