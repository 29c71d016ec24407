"""CURRENT: the file that names the manifest in use. Byte grid: docs/format.md."""

from __future__ import annotations

import errno
import os
import re

import xxhash

from lsmkv import filenames
from lsmkv.errors import CorruptionError, IOError
from lsmkv.files import Replacement, read_bounded

MAX_CURRENT_BYTES = 128
FOREIGN_CURRENT = re.compile(rb"MANIFEST-[0-9]+\n")


def encode_current(number: int) -> bytes:
    name = filenames.manifest_name(number).encode()
    return name + b" %016x\n" % xxhash.xxh3_64_intdigest(name)


def decode_current(data: bytes, file: str) -> int:
    name = data.split(b" ", 1)[0]
    parsed = filenames.parse(name.decode("ascii", "replace"))
    if parsed is None or parsed[0] is not filenames.FileKind.MANIFEST or data != encode_current(parsed[1]):
        raise CorruptionError("CURRENT does not name a manifest", file, 0)
    return parsed[1]


def read_current(directory: str) -> int:
    path = os.path.join(directory, filenames.CURRENT)
    return decode_current(read_bounded(path, MAX_CURRENT_BYTES), path)


def refuse_foreign(directory: str) -> None:
    """Raises IOError if CURRENT is LevelDB's or RocksDB's, which use the same names. Called before files are removed
    by name. A CURRENT of ours never looks like theirs, not even if it is cut off.
    """
    path = os.path.join(directory, filenames.CURRENT)
    try:
        current = read_bounded(path, MAX_CURRENT_BYTES)
    except (FileNotFoundError, CorruptionError):
        return
    if FOREIGN_CURRENT.fullmatch(current):
        raise IOError(errno.EEXIST, "the directory holds a database of LevelDB or RocksDB", directory)


def new_current(directory: str, number: int) -> Replacement:
    return Replacement(directory, filenames.CURRENT, encode_current(number))


def write_current(directory: str, number: int) -> None:
    new_current(directory, number).commit()
