"""Which files of a folder are ours? Names prove little: other programs use 000005.sst, MANIFEST-000001 or OPTIONS, too.

A folder whose CURRENT is ours is a database, and every file with a name of ours belongs to it, damaged ones included.
Without it a file is ours if what is in it shows that.
"""

from __future__ import annotations

import errno
import os
import re

from lsmkv import filenames
from lsmkv.errors import CorruptionError, IOError
from lsmkv.filenames import Kind
from lsmkv.options import MAX_OPTIONS_BYTES, Options
from lsmkv.version.manifest import MAGIC, MAX_CURRENT_BYTES, open_to_read, read_bounded
from lsmkv_ext.wal.sync_watermark import damaged_places

TABLE_MAGIC = b"lsmkvSST"  # the last bytes of a table
LOG_MAGIC = b"lsmkvlog"  # the first ones of a log
NOTE_BYTES = 4096
STATS_BEGINS = b'{"pid": '
OUR_CURRENT = re.compile(rb"MANIFEST-[0-9]+ ")  # where LevelDB's has a line break


def is_database(directory: str) -> bool:
    """Whether CURRENT is ours. It may be damaged behind the manifest's name."""
    try:
        current = read_bounded(os.path.join(directory, filenames.CURRENT), MAX_CURRENT_BYTES)
    except (FileNotFoundError, CorruptionError):
        return False
    return OUR_CURRENT.match(current) is not None


def recognised(directory: str, name: str, kind: Kind) -> bool:
    """Whether the contents show that the file is ours. An empty one has none to lose, one that is gone neither."""
    path = os.path.join(directory, name)
    try:
        size = os.lstat(path).st_size
        return size == 0 or _contents_are_ours(path, name, kind, size)
    except FileNotFoundError:
        return True
    except CorruptionError:
        return False


def _contents_are_ours(path: str, name: str, kind: Kind, size: int) -> bool:
    if kind is Kind.CURRENT:
        return is_database(os.path.dirname(path))
    if kind is Kind.TABLE:
        return _bytes_at(path, max(size - len(TABLE_MAGIC), 0), len(TABLE_MAGIC)) == TABLE_MAGIC
    if kind is Kind.LOG or name.endswith(".wal.tmp"):
        return _bytes_at(path, 0, len(LOG_MAGIC)) == LOG_MAGIC
    if kind is Kind.MANIFEST:
        return _begins(path, MAGIC)
    if kind is Kind.SYNCED:
        return size == NOTE_BYTES and not damaged_places(path)
    if name.startswith(filenames.CURRENT):
        return _begins(path, b"MANIFEST-")
    if name.startswith(filenames.OPTIONS):
        return Options.decode(read_bounded(path, MAX_OPTIONS_BYTES), path) is not None
    if name.startswith(filenames.STATS):
        return _bytes_at(path, 0, len(STATS_BEGINS)) == STATS_BEGINS
    return False


def _bytes_at(path: str, offset: int, n: int) -> bytes:
    with open_to_read(path) as file:
        file.seek(offset)
        return file.read(n)


def _begins(path: str, magic: bytes) -> bool:
    """Also where a power cut left less of it, or zeros: creating a database writes this file before CURRENT."""
    return magic.startswith(_bytes_at(path, 0, len(magic)).rstrip(b"\0"))


def refuse_strangers(directory: str) -> None:
    """Before a database is made in the folder: it would remove or replace the files of others."""
    if is_database(directory):
        return
    for name, kind, _ in filenames.list_directory(directory):
        # LOCK is never written to.
        if kind is not Kind.LOCK and not recognised(directory, name, kind):
            path = os.path.join(directory, name)
            raise IOError(errno.EEXIST, "there is no database, and the file is not recognised as ours", path)
