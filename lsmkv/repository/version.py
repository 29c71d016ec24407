"""Versions: what one backup consists of, and its bytes in the repository. Layout: docs/backup.md.

A version names objects by the SHA-256 of their contents, so two versions share what did not change.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from lsmkv import filenames
from lsmkv.errors import CorruptionError, FormatError, IOError
from lsmkv.filenames import FileKind
from lsmkv.repository.store import Store

FORMAT = 1
HEAD = re.compile(rb"lsmkv-backup ([0-9]{1,9}) ([0-9]{1,12}) ([0-9a-f]{64})\n")
VERSIONS = "versions/"
DATA = "data/"
NAME = re.compile(r"versions/(([0-9]{6,12})-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8})\Z", re.ASCII)
OBJECT = re.compile(r"data/[0-9a-f]{2}/[0-9a-f]{64}(\.[0-9]+\.tmp)?\Z", re.ASCII)  # or an unfinished one of a directory
DIGEST = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)
# The files of a checkpoint.
KINDS = frozenset({FileKind.TABLE, FileKind.VALUE_LOG, FileKind.MANIFEST, FileKind.CURRENT, FileKind.OPTIONS})


@dataclass(frozen=True)
class File:
    """A file of a version. `inode` and `mtime_ns` are those of the source when it was read."""

    name: str
    size: int
    sha256: str
    inode: int = 0
    mtime_ns: int = 0

    @property
    def object(self) -> str:
        """The name of its contents in the repository."""
        return f"{DATA}{self.sha256[:2]}/{self.sha256}"


@dataclass(frozen=True)
class Backup:
    """One version in a repository of backups.

    `bytes` are those of all its files. `sent_files` and `sent_bytes` are what the call that made it had to send; they
    are 0 in the results of other calls.

    >>> with lsmkv.open("people.db") as db:
    ...     version = lsmkv.backup(db, "backups")
    >>> version.bytes > 0
    True
    """

    id: str
    created: datetime
    source: str  # the path of the database
    files: tuple[File, ...] = field(repr=False)
    sent_files: int = 0
    sent_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The bytes of the database.

        >>> with lsmkv.open("people.db") as db:
        ...     version = lsmkv.backup(db, "backups")
        >>> version.bytes == sum(file.size for file in version.files)
        True
        """
        return sum(file.size for file in self.files)

    @property
    def objects(self) -> set[str]:
        """The names of the objects that it needs.

        >>> with lsmkv.open("people.db") as db:
        ...     version = lsmkv.backup(db, "backups")
        >>> sorted(version.objects)[0][:5]
        'data/'
        """
        return {file.object for file in self.files}

    def to_dict(self) -> dict[str, Any]:
        """Return the version as plain data, for JSON.

        >>> with lsmkv.open("people.db") as db:
        ...     version = lsmkv.backup(db, "backups")
        >>> version.to_dict()["id"] == version.id
        True
        """
        return {**asdict(self), "created": self.created.isoformat(), "bytes": self.bytes}


def new_id(newest: str | None, now: datetime) -> str:
    """Ids sort in the order in which versions were made, whatever the clock says. They need no coordination."""
    number = 1 if newest is None else int(newest.partition("-")[0]) + 1
    return f"{number:06d}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def utc_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def encode(version: Backup) -> bytes:
    fields = {
        "id": version.id,
        "created": version.created.isoformat(),
        "source": version.source,
        "files": [asdict(file) for file in version.files],
    }
    body = json.dumps(fields, indent=1).encode() + b"\n"
    return b"lsmkv-backup %d %d %s\n" % (FORMAT, len(body), hashlib.sha256(body).hexdigest().encode()) + body


def decode(data: bytes, name: str) -> Backup:
    """Raises CorruptionError if the bytes are damaged, FormatError if a newer release wrote them."""
    head = HEAD.match(data)
    if head is None:
        raise CorruptionError("not a version of a backup", name, 0)
    body = data[head.end() :]
    if len(body) != int(head[2]) or hashlib.sha256(body).hexdigest().encode() != head[3]:
        raise CorruptionError("a version of a backup does not match its checksum", name, head.end())
    if int(head[1]) > FORMAT:
        raise FormatError(f"format {int(head[1])} of backups is newer than {FORMAT}, which this release knows", name)
    try:
        return _decode(json.loads(body), name)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptionError(f"a version of a backup makes no sense: {error}", name) from error


def _decode(fields: Mapping[str, Any], name: str) -> Backup:
    files = tuple(_decode_file(each) for each in fields["files"])
    if len({file.name for file in files}) != len(files):
        raise ValueError("a file is named twice")
    if VERSIONS + fields["id"] != name:
        raise ValueError(f"it says that it is {fields['id']}")
    return Backup(fields["id"], datetime.fromisoformat(fields["created"]), str(fields["source"]), files)


def _decode_file(fields: Mapping[str, Any]) -> File:
    # The name becomes a path, and the digest the name of an object.
    file = File(**fields)
    kind = filenames.parse(file.name)
    if kind is None or kind[0] not in KINDS:
        raise ValueError(f"no database has a file {file.name!r}")
    if not DIGEST.match(file.sha256) or not isinstance(file.size, int) or file.size < 0:
        raise ValueError(f"size or digest of {file.name}")
    return file


def list_ids(store: Store) -> list[str]:
    """The ids of all versions, oldest first."""
    matches = (NAME.match(name) for name in store.list(VERSIONS))
    return sorted((match[1] for match in matches if match), key=lambda each: (int(each.partition("-")[0]), each))


def load(store: Store, version: str) -> Backup:
    name = VERSIONS + version
    if not NAME.match(name):
        raise IOError(errno.ENOENT, "not the id of a version", version)
    return decode(store.read(name), name)
