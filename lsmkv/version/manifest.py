"""The manifest: a log of version edits. Byte grid: docs/format.md.

Every record is synced before its edit is installed. The head keeps, in two alternating slots
(`lsmkv_ext.port.sync_slots`), the offset up to which the file is known synced: damage below it is corruption, a bad
record above it is an append that never finished.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import xxhash

from lsmkv import filenames
from lsmkv.errors import CorruptionError, Error, FormatError, IOError
from lsmkv.files import (
    io_errors,
    is_no_room,
    open_above_stdio,
    open_own,
    open_to_read,
    read_at_most,
    sync_directory,
    sync_file,
    write_all,
)
from lsmkv.version.edit import TreeEdit, VersionEdit, decode_edit
from lsmkv.version.version import TableMeta, Version
from lsmkv_ext.port.sync_slots import SyncSlots

log = logging.getLogger("lsmkv")

MAGIC = b"LSMKVMAN"
LATEST_FORMAT = 2
HEAD = struct.Struct("<8sIIQ")  # magic, version, zero, manifest number; then checksum
RECORD = struct.Struct("<IIQ")  # payload length, zero, ordinal; then checksum of these and the payload
CHECKSUM = struct.Struct("<Q")

HEAD_BYTES = 192
RECORD_HEAD_BYTES = RECORD.size + CHECKSUM.size
MAX_RECORD = 256 << 20
# An open reads every record. From this many on it starts a new manifest, which takes three more syncs.
MOST_RESUMED = 64


def _checksum(data: bytes, seed: int) -> bytes:
    return CHECKSUM.pack(xxhash.xxh3_64_intdigest(data, seed=seed))


def _head(number: int, format_version: int) -> bytes:
    fields = HEAD.pack(MAGIC, format_version, 0, number)
    return (fields + _checksum(fields, number)).ljust(HEAD_BYTES, b"\0")


def sync_slots(number: int) -> SyncSlots:
    """The slots in the head of manifest `number`."""
    return SyncSlots(64, 128, count_at=0, synced_at=8, seed=number)


def _record(ordinal: int, payload: bytes, number: int) -> bytes:
    fields = RECORD.pack(len(payload), 0, ordinal)
    return fields + _checksum(fields + payload, number) + payload


@dataclass(frozen=True)
class Record:
    offset: int
    edit: VersionEdit


@dataclass(frozen=True)
class TreeState:
    """What the manifest says of one keyspace."""

    name: str = ""  # of the default one
    options: Mapping[str, Any] = field(default_factory=dict)  # as given, without the defaults
    version: Version = field(default_factory=Version)

    def apply(self, edit: TreeEdit) -> TreeState:
        options = self.options if edit.options is None else edit.options
        return replace(self, options=options, version=edit.apply(self.version))


@dataclass
class ManifestState:
    """The sum of a manifest's edits."""

    number: int
    format_version: int = 1
    trees: dict[int, TreeState] = field(default_factory=lambda: {0: TreeState()})  # by keyspace id, ascending
    seed: int = 0
    next_file: int = 1
    last_seq: int = 0
    log_number: int = 0
    logged: bool = True
    next_keyspace: int = 1
    clock: int = 0
    records: int = 0
    size: int = HEAD_BYTES  # up to the end of the last good record
    torn_bytes: int = 0
    synced: int = field(default=0, compare=False)  # known to be on disk up to here
    first_end: int = 0  # where the first record, a whole state, ends

    @property
    def resumable(self) -> bool:
        """Whether edits may follow the last one: all of it is known to be on disk. A record that was read but never
        synced may be in memory alone, after a failed fsync.
        """
        return not self.torn_bytes and self.synced == self.size and self.records < MOST_RESUMED

    def files(self) -> Iterator[TableMeta]:
        """The tables of all keyspaces."""
        for tree in self.trees.values():
            yield from tree.version.files()

    def apply(self, edit: VersionEdit) -> None:
        self.seed = self.seed if edit.seed is None else edit.seed
        self.next_file = self.next_file if edit.next_file is None else edit.next_file
        self.last_seq = self.last_seq if edit.last_seq is None else edit.last_seq
        self.log_number = self.log_number if edit.log_number is None else edit.log_number
        self.logged = self.logged if edit.logged is None else edit.logged
        self.next_keyspace = self.next_keyspace if edit.next_keyspace is None else edit.next_keyspace
        if edit.clock is not None and edit.clock < self.clock:
            raise ValueError("the clock runs backward")
        self.clock = self.clock if edit.clock is None else edit.clock
        self.trees = _apply_trees(self.trees, edit.trees, self.next_keyspace)
        self.records += 1

    def same_trees(self, other: ManifestState) -> bool:
        def facts(state: ManifestState) -> tuple[Any, ...]:
            return state.trees, state.last_seq, state.log_number, state.logged, state.next_keyspace, state.clock

        return facts(self) == facts(other)


def _apply_trees(trees: Mapping[int, TreeState], edits: Iterable[TreeEdit], next_keyspace: int) -> dict[int, TreeState]:
    """The keyspaces after an edit. Drops apply before creations. Raises ValueError if one does not fit."""
    after = dict(trees)
    for edit in sorted(edits, key=lambda edit: not edit.dropped):
        known = after.get(edit.keyspace)
        if (known is None) != (edit.name is not None):
            raise ValueError(f"keyspace {edit.keyspace} {'does not exist' if known is None else 'exists'}")
        if edit.dropped:
            del after[edit.keyspace]
            continue
        if known is None:
            if edit.keyspace >= next_keyspace or any(tree.name == edit.name for tree in after.values()):
                raise ValueError(f"keyspace {edit.keyspace} cannot be created")
            known = TreeState(edit.name or "")
        after[edit.keyspace] = known.apply(edit)
    return dict(sorted(after.items()))


def check_head(data: bytes, number: int, path: str) -> tuple[int, int]:
    """Validates the head; returns the format and the offset known to be synced."""
    if len(data) < HEAD_BYTES:
        raise CorruptionError(f"manifest of {len(data)} bytes is shorter than its head", path, len(data))
    magic, version, zero, stored = HEAD.unpack_from(data)
    fields = data[: HEAD.size]
    if magic != MAGIC or zero or data[HEAD.size : HEAD.size + CHECKSUM.size] != _checksum(fields, stored):
        raise CorruptionError("not a manifest", path, 0)
    if version > LATEST_FORMAT:
        raise FormatError(f"format {version} is newer than {LATEST_FORMAT}, the latest that this release knows", path)
    if version == 0:
        raise CorruptionError("manifest of format 0", path, 8)
    if stored != number:
        raise CorruptionError(f"manifest says it is number {stored}", path, 16)
    newest = sync_slots(number).newest(data)
    return version, HEAD_BYTES if newest is None else newest[1]


def head_damage(data: bytes, number: int) -> str | None:
    """Returns the damage that an open tolerates: a slot neither good nor blank, bytes where none belong."""
    slots = sync_slots(number)
    for at in slots.damaged(data):
        return f"damaged slot at offset {at}"
    end = HEAD.size + CHECKSUM.size
    for start in (*slots.offsets, HEAD_BYTES):
        if any(data[end:start]):
            return f"unexpected bytes between offsets {end} and {start}"
        end = start + slots.size
    return None if slots.newest(data) else "no slot says what is synced"


def scan(data: bytes, number: int, path: str, state: ManifestState) -> Iterator[Record]:
    """Yields the records in order and applies them to `state`. Stops at a torn tail, which it counts in `state`;
    raises CorruptionError for other damage.
    """
    state.format_version, synced = check_head(data, number, path)
    state.synced = synced
    if synced > len(data):
        raise CorruptionError(f"manifest was synced up to {synced} but ends at {len(data)}", path, len(data))
    at = HEAD_BYTES
    while at < len(data):
        problem = _record_problem(data, at, state.records, number)
        if problem is not None:
            if at < synced:
                raise CorruptionError(problem, path, at)
            state.torn_bytes = len(data) - at
            return
        length = RECORD.unpack_from(data, at)[0]
        start = at + RECORD_HEAD_BYTES
        edit = decode_edit(data[start : start + length], path, at, format_version=state.format_version)
        try:
            state.apply(edit)
        except ValueError as error:
            raise CorruptionError(f"version edit does not fit: {error}", path, at) from error
        yield Record(at, edit)
        at = state.size = start + length
        state.first_end = state.first_end or at
    if at < synced:
        raise CorruptionError("a record crosses the synced offset", path, at)


def _record_problem(data: bytes, at: int, ordinal: int, number: int) -> str | None:
    left = len(data) - at
    if left < RECORD_HEAD_BYTES:
        return "manifest record head is cut off"
    length, zero, stored = RECORD.unpack_from(data, at)
    if zero or stored != ordinal or length > MAX_RECORD or length > left - RECORD_HEAD_BYTES:
        return "manifest record head is damaged"
    fields = data[at : at + RECORD.size]
    start = at + RECORD_HEAD_BYTES
    if data[at + RECORD.size : start] != _checksum(fields + data[start : start + length], number):
        return "manifest record does not match its checksum"
    return None


def read_manifest(directory: str, number: int) -> ManifestState:
    """Raises CorruptionError for anything but a torn tail, and for a manifest without a record."""
    path = filenames.manifest_path(directory, number)
    with open_to_read(path) as file:
        return decode_manifest(file, number, path)


def decode_manifest(file: BinaryIO, number: int, path: str) -> ManifestState:
    data = read_at_most(file, MAX_RECORD, path)
    state = ManifestState(number)
    for _ in scan(data, number, path, state):
        pass
    if not state.records:
        raise CorruptionError("manifest holds no version", path, HEAD_BYTES)
    return state


# Writing ----------------------------------------------------------------------------------------------------


class AppendRefused(IOError):
    """The disk had no room for the whole record. It is a torn tail, and the edit does not count.

    After any other failed append, the next open may or may not find the edit.
    """


class ManifestWriter:
    """Appends edits to one manifest file. After a failure it refuses more, and the caller starts a new manifest."""

    def __init__(self, directory: str, number: int, size: int = HEAD_BYTES, records: int = 0) -> None:
        """For `create` and `resume`."""
        self.number = number
        self.path = filenames.manifest_path(directory, number)
        self.failed = False
        self.size = size
        self._records = records
        self._slots = sync_slots(number)
        self._fd = -1

    @classmethod
    def create(cls, directory: str, number: int, first: VersionEdit, format_version: int) -> ManifestWriter:
        """Creates and syncs the file with `first`, a whole state, in it. The caller replaces CURRENT."""
        self = cls(directory, number)
        with io_errors("create", self.path):
            self._fd = open_above_stdio(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with io_errors("write", self.path):
                write_all(self._fd, _head(number, format_version), self.path)
            self.append(first)
            sync_directory(directory)
        except BaseException:
            self.close()
            raise
        return self

    @classmethod
    def resume(cls, directory: str, state: ManifestState) -> ManifestWriter:
        """Opens the file that `state`, which is resumable, was read from."""
        self = cls(directory, state.number, state.size, state.records)
        with io_errors("open", self.path):
            self._fd = open_own(self.path, os.O_RDWR)
            os.lseek(self._fd, state.size, os.SEEK_SET)  # O_APPEND would move the slots there too
        return self

    def append(self, edit: VersionEdit) -> None:
        """Returns once the edit is durable."""
        self.stage(edit)()

    def stage(self, edit: VersionEdit) -> Callable[[], None]:
        """Does all of an append that needs memory; the call returned does the rest."""
        if self.failed:
            raise Error("manifest had a failed append; a new one must be started")
        payload = edit.encode()
        if len(payload) > MAX_RECORD:
            raise Error(f"version edit of {len(payload)} bytes is too large")
        record = _record(self._records, payload, self.number)
        records, size = self._records + 1, self.size + len(record)
        return partial(self._append, record, records, size, *self._slots.encode(records, size))

    def _append(self, record: bytes, records: int, size: int, slot_at: int, slot: bytes) -> None:
        self.failed = True  # until all went well: nothing may follow a record that is incomplete or not synced
        try:
            write_all(self._fd, record, self.path)
        except OSError as error:
            kind = AppendRefused if is_no_room(error) else IOError
            raise kind(error.errno, f"write: {error.strerror}", self.path) from error
        sync_file(self._fd, self.path)
        self.size = size
        self._records = records
        self.failed = not self._store_slot(slot_at, slot)

    def _store_slot(self, offset: int, slot: bytes) -> bool:
        # Not synced: after a power cut it may lag, it never runs ahead.
        try:
            os.pwrite(self._fd, slot, offset)
        except OSError as error:
            # The edit is durable, so the append has not failed; the next one goes to a new file.
            log.warning("%s: cannot store the synced offset: %s", self.path, error)
            return False
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def snapshot_edit(state: ManifestState, reason: str, time_us: int) -> VersionEdit:
    """The edit that builds all of `state` from nothing: the first record of a manifest."""
    edit = VersionEdit(
        seed=state.seed,
        next_file=state.next_file,
        last_seq=state.last_seq,
        log_number=state.log_number,
        logged=state.logged,
        trees=tuple(_snapshot_tree(keyspace, tree) for keyspace, tree in state.trees.items()),
        reason=reason,
        time_us=time_us,
    )
    return edit if state.format_version == 1 else replace(edit, next_keyspace=state.next_keyspace, clock=state.clock)


def _snapshot_tree(keyspace: int, tree: TreeState) -> TreeEdit:
    files = tuple((level, f) for level, files in enumerate(tree.version.levels) for f in files)
    if keyspace == 0:
        return TreeEdit(added=files)
    return TreeEdit(keyspace=keyspace, name=tree.name, options=tree.options, added=files)
