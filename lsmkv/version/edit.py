"""VersionEdit: one step from a state of the database to the next, and its bytes in the MANIFEST.

Byte grid: docs/format.md. A sequence of fields, each tag (1 byte), length (varint), value. Tags from 0x40
on may be skipped by a reader that does not know them; any other unknown tag is corruption. In format 2 the tag
KEYSPACE divides an edit into parts, one for each keyspace that it changes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lsmkv.errors import CorruptionError
from lsmkv.filenames import MAX_FILE_NUMBER
from lsmkv.options import MAX_LEVELS
from lsmkv.version.version import TableMeta, Version
from lsmkv_ext.limits import MAX_KEY
from lsmkv_ext.table.meta import ValueLogUse

TAG_SEED = 1
TAG_NEXT_FILE = 2
TAG_LAST_SEQ = 3
TAG_LOG_NUMBER = 4
TAG_ADD = 5
TAG_REMOVE = 6
TAG_MOVE = 7
TAG_SHIFT = 8
TAG_LOGGED = 9
TAG_KEYSPACE = 10
TAG_NAME = 11
TAG_OPTIONS = 12
TAG_DROP = 13
TAG_NEXT_KEYSPACE = 14
TAG_CLOCK = 15
TAG_TIME = 0x40
TAG_REASON = 0x41
FIRST_OPTIONAL_TAG = 0x40  # also of extensions

EXTENSION_EXPIRY = 1
EXTENSION_VALUE_LOGS = 2
EXTENSION_OWN_LOG = 3
EXTENSION_FILTER_KIND = 4

MAX_REASON = 200
MAX_NAME = 255  # bytes of a keyspace's name
MAX_OPTIONS = 64 << 10
MAX_KEYSPACE = (1 << 32) - 1
MAX_CLOCK = 1 << 62
MAX_VARINT = 10  # bytes of the largest
U64 = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True)
class TreeEdit:
    """A change of one keyspace. Applied in the order shift, remove, move, add."""

    keyspace: int = 0
    name: str | None = None  # creates the keyspace
    options: Mapping[str, Any] | None = None  # replaces those given before
    dropped: bool = False  # with all tables
    shift: int = 0
    removed: tuple[int, ...] = ()
    moved: tuple[tuple[int, int], ...] = ()  # (file number, new level)
    added: tuple[tuple[int, TableMeta], ...] = ()  # (level, file)

    def apply(self, version: Version) -> Version:
        """The version after this edit. Raises ValueError if the edit does not fit `version`."""
        if self.shift:
            version = version.shifted(self.shift)
        leaving: dict[int, set[int]] = defaultdict(set)
        arriving: dict[int, list[TableMeta]] = defaultdict(list)
        for number, target in (*((number, None) for number in self.removed), *self.moved):
            level, f = version.places.get(number, (0, None))
            if f is None or number in leaving[level]:
                raise ValueError(f"file {number} is not in the version")
            leaving[level].add(number)
            if target is not None:
                arriving[target].append(f)
        for level, f in self.added:
            arriving[level].append(f)
        for level in arriving:
            if not 0 <= level < MAX_LEVELS:
                raise ValueError(f"there is no L{level}")
        changed = {
            level: [f for f in version.levels[level] if f.number not in leaving[level]] + arriving[level]
            for level in leaving.keys() | arriving.keys()
        }
        return version.with_levels(changed) if changed else version

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return self != TreeEdit(keyspace=self.keyspace)

    def encode_into(self, out: bytearray) -> None:
        if self.keyspace:
            _put_field(out, TAG_KEYSPACE, _varint(self.keyspace))
        if self.name is not None:
            _put_field(out, TAG_NAME, self.name.encode())
        if self.options is not None:
            _put_field(out, TAG_OPTIONS, json.dumps(self.options, sort_keys=True).encode())
        if self.dropped:
            _put_field(out, TAG_DROP, b"")
        if self.shift:
            _put_field(out, TAG_SHIFT, _varint({1: 1, -1: 2}[self.shift]))
        for number in self.removed:
            _put_field(out, TAG_REMOVE, _varint(number))
        for number, level in self.moved:
            _put_field(out, TAG_MOVE, _varint(number) + _varint(level))
        for level, f in self.added:
            _put_field(out, TAG_ADD, _encode_file(level, f))


@dataclass(frozen=True, kw_only=True)
class VersionEdit:
    """A change of the trees and of the numbers of the database; `None` leaves a number as it is."""

    seed: int | None = None
    next_file: int | None = None
    last_seq: int | None = None
    log_number: int | None = None  # logs with a smaller number are no longer needed
    logged: bool | None = None  # whether writes go to a log: then the one named above must exist
    next_keyspace: int | None = None
    clock: int | None = None
    trees: tuple[TreeEdit, ...] = ()  # at most one for each keyspace
    time_us: int = 0
    reason: str = ""

    @classmethod
    def of(
        cls, *, reason: str = "", last_seq: int | None = None, clock: int | None = None, **changes: Any
    ) -> VersionEdit:
        """The edit of one keyspace that makes these changes of a `TreeEdit`."""
        return cls(trees=(TreeEdit(**changes),), reason=reason, last_seq=last_seq, clock=clock)

    @property
    def removed(self) -> tuple[int, ...]:
        """The tables that leave any of the trees; a dropped tree names none."""
        return tuple(number for tree in self.trees for number in tree.removed)

    def encode(self) -> bytes:
        out = bytearray()
        for tag, number in (
            (TAG_SEED, self.seed),
            (TAG_NEXT_FILE, self.next_file),
            (TAG_LAST_SEQ, self.last_seq),
            (TAG_LOG_NUMBER, self.log_number),
            (TAG_LOGGED, self.logged),
            (TAG_NEXT_KEYSPACE, self.next_keyspace),
            (TAG_CLOCK, self.clock),
            (TAG_TIME, self.time_us or None),
        ):
            if number is not None:
                _put_field(out, tag, _varint(int(number)))
        if self.reason:
            _put_field(out, TAG_REASON, self.reason.encode()[:MAX_REASON])
        # The default keyspace first: its fields are those before the first KEYSPACE.
        for tree in sorted(self.trees, key=lambda tree: tree.keyspace):
            tree.encode_into(out)
        return bytes(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put_field(out: bytearray, tag: int, value: bytes) -> None:
    out.append(tag)
    out += _varint(len(value))
    out += value


# The numbers of a file, in the order they are stored, with the largest valid value of each.
_FILE_NUMBERS: tuple[tuple[str, int], ...] = (
    ("number", MAX_FILE_NUMBER),
    ("size", U64),
    ("entries", U64),
    ("deletes", U64),
    ("range_tombstones", U64),
    ("min_seq", U64),
    ("max_seq", U64),
    ("global_seq", U64),
    ("raw_bytes", U64),
    ("data_bytes", U64),
    ("index_bytes", U64),
    ("filter_bytes", U64),
    ("filter_keys", U64),
    ("millibits", (1 << 32) - 1),
    ("k", 255),
    ("filter_level", 255),
    ("largest_exclusive", 1),
)


# The numbers of extension 1, likewise.
_EXPIRY_NUMBERS: tuple[tuple[str, int], ...] = (
    ("expiring", U64),
    ("min_expiry", MAX_CLOCK),
    ("max_expiry", MAX_CLOCK),
    ("expiring_bytes", U64),
)


def _encode_file(level: int, f: TableMeta) -> bytes:
    out = bytearray(_varint(level))
    for name, _ in _FILE_NUMBERS:
        out += _varint(int(getattr(f, name)))
    for key in (f.smallest, f.largest):
        out += _varint(len(key)) + key
    if f.expiring:
        value = b"".join(_varint(getattr(f, name)) for name, _ in _EXPIRY_NUMBERS)
        out += _varint(EXTENSION_EXPIRY) + _varint(len(value)) + value
    if f.filter_kind != 1:
        value = _varint(f.filter_kind)
        out += _varint(EXTENSION_FILTER_KIND) + _varint(len(value)) + value
    if f.value_logs:
        value = b"".join(map(_encode_use, f.value_logs))
        out += _varint(EXTENSION_VALUE_LOGS) + _varint(len(value)) + value
    if f.own_log:
        value = _varint(f.own_log)
        out += _varint(EXTENSION_OWN_LOG) + _varint(len(value)) + value
    return bytes(out)


def _encode_use(use: ValueLogUse) -> bytes:
    identity = use.identity.to_bytes(8, "little")
    return _varint(use.number) + identity + b"".join(map(_varint, (use.values, use.bytes, use.end)))


class _Reader:
    """Reads varints and bytes; checks every length against what is left."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def varint(self, limit: int) -> int:
        data, at = self.data, self.at
        value = shift = 0
        for byte in data[at : at + MAX_VARINT]:
            at += 1
            if byte < 0x80:
                break
            value |= (byte & 0x7F) << shift
            shift += 7
        else:
            raise ValueError("a varint does not end")
        value |= byte << shift
        if value > limit:
            raise ValueError(f"{value} is above {limit}")
        self.at = at
        return value

    def bytes(self, limit: int) -> bytes:
        size = self.varint(limit)
        if size > self.left:
            raise ValueError(f"{size} bytes announced, {self.left} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def u64(self) -> int:
        if self.left < 8:
            raise ValueError(f"8 bytes expected, {self.left} left")
        self.at += 8
        return int.from_bytes(self.data[self.at - 8 : self.at], "little")

    def finish(self) -> None:
        if self.left:
            raise ValueError(f"{self.left} bytes too many")


def _decode_expiry(value: bytes) -> dict[str, int]:
    reader = _Reader(value)
    numbers = {name: reader.varint(limit) for name, limit in _EXPIRY_NUMBERS}
    reader.finish()
    if not numbers["expiring"] or not 0 < numbers["min_expiry"] <= numbers["max_expiry"]:
        raise ValueError("the expiries of a file contradict each other")
    return numbers


def _decode_uses(value: bytes) -> dict[str, tuple[ValueLogUse, ...]]:
    reader = _Reader(value)
    uses: list[ValueLogUse] = []
    while reader.left:
        number, identity = reader.varint(MAX_FILE_NUMBER), reader.u64()
        use = ValueLogUse(number, identity, reader.varint(U64), reader.varint(U64), reader.varint(U64))
        if not (number and identity and use.values) or (uses and uses[-1].number >= number):
            raise ValueError("the value logs of a file are malformed")
        uses.append(use)
    if not uses:
        raise ValueError("an empty list of value logs")
    return {"value_logs": tuple(uses)}


def _decode_filter_kind(value: bytes) -> int:
    kind = _one_number(255)(value)
    if kind < 2:
        raise ValueError(f"filter kind {kind} needs no extension")
    return kind


def _decode_extensions(reader: _Reader) -> dict[str, Any]:
    """The fields in the extensions of a file, which follow its keys."""
    numbers: dict[str, Any] = {}
    seen: set[int] = set()
    while reader.left:
        extension = reader.varint(U64)
        value = reader.bytes(reader.left)
        if extension in seen:
            raise ValueError(f"extension {extension} appears twice")
        seen.add(extension)
        if extension == EXTENSION_EXPIRY:
            numbers |= _decode_expiry(value)
        elif extension == EXTENSION_VALUE_LOGS:
            numbers |= _decode_uses(value)
        elif extension == EXTENSION_OWN_LOG:
            numbers["own_log"] = _one_number(MAX_FILE_NUMBER)(value)
        elif extension == EXTENSION_FILTER_KIND:
            numbers["filter_kind"] = _decode_filter_kind(value)
        elif extension < FIRST_OPTIONAL_TAG:
            raise ValueError(f"unknown extension {extension}")
    return numbers


def _decode_file_1(value: bytes) -> tuple[int, TableMeta]:
    return _decode_file(value, extended=False)


def _decode_file_2(value: bytes) -> tuple[int, TableMeta]:
    return _decode_file(value, extended=True)


def _decode_file(value: bytes, extended: bool) -> tuple[int, TableMeta]:
    reader = _Reader(value)
    level = reader.varint(MAX_LEVELS - 1)
    numbers: dict[str, Any] = {name: reader.varint(limit) for name, limit in _FILE_NUMBERS}
    exclusive = bool(numbers.pop("largest_exclusive"))
    smallest, largest = reader.bytes(MAX_KEY), reader.bytes(MAX_KEY)
    if extended:
        numbers |= _decode_extensions(reader)
    reader.finish()
    if numbers.get("expiring", 0) > numbers["entries"]:
        raise ValueError("a file has more expiries than entries")
    if "own_log" in numbers and [numbers["own_log"]] != [use.number for use in numbers.get("value_logs", ())]:
        raise ValueError("an ingested file points into other value logs than its own")
    if not numbers["number"] or numbers["min_seq"] > numbers["max_seq"]:
        raise ValueError("a file entry contradicts itself")
    return level, TableMeta(smallest=smallest, largest=largest, largest_exclusive=exclusive, **numbers)


def _one_number(limit: int) -> Callable[[bytes], int]:
    def decode(value: bytes) -> int:
        reader = _Reader(value)
        number = reader.varint(limit)
        reader.finish()
        return number

    return decode


def _decode_move(value: bytes) -> tuple[int, int]:
    reader = _Reader(value)
    pair = reader.varint(MAX_FILE_NUMBER), reader.varint(MAX_LEVELS - 1)
    reader.finish()
    return pair


def _decode_shift(value: bytes) -> int:
    code = _one_number(2)(value)
    if code == 0:
        raise ValueError("a shift by nothing")
    return 1 if code == 1 else -1


def _decode_name(value: bytes) -> str:
    if not 0 < len(value) <= MAX_NAME:
        raise ValueError(f"a name of {len(value)} bytes")
    return value.decode()


def _decode_options(value: bytes) -> dict[str, Any]:
    if len(value) > MAX_OPTIONS:
        raise ValueError(f"options of {len(value)} bytes")
    options = json.loads(value)
    if not isinstance(options, dict):
        raise ValueError("options that are no object")
    return options


def _decode_drop(value: bytes) -> bool:
    if value:
        raise ValueError("a drop with a value")
    return True


_Decoders = Mapping[int, tuple[str, Callable[[bytes], object]]]

_NUMBERS: _Decoders = {  # of the database
    TAG_SEED: ("seed", _one_number(U64)),
    TAG_NEXT_FILE: ("next_file", _one_number(MAX_FILE_NUMBER)),
    TAG_LAST_SEQ: ("last_seq", _one_number(U64)),
    TAG_LOG_NUMBER: ("log_number", _one_number(MAX_FILE_NUMBER)),
    TAG_LOGGED: ("logged", lambda value: bool(_one_number(1)(value))),
    TAG_TIME: ("time_us", _one_number(U64)),
    TAG_REASON: ("reason", lambda value: value[:MAX_REASON].decode(errors="replace")),
}
_NUMBERS_2: _Decoders = {
    TAG_NEXT_KEYSPACE: ("next_keyspace", _one_number(MAX_KEYSPACE + 1)),
    TAG_CLOCK: ("clock", _one_number(MAX_CLOCK)),
}
_SINGLE: _Decoders = {  # of one keyspace
    TAG_SHIFT: ("shift", _decode_shift),
}
_SINGLE_2: _Decoders = {  # of one that is not the default
    TAG_NAME: ("name", _decode_name),
    TAG_OPTIONS: ("options", _decode_options),
    TAG_DROP: ("dropped", _decode_drop),
}
_REPEATED: _Decoders = {
    TAG_REMOVE: ("removed", _one_number(MAX_FILE_NUMBER)),
    TAG_MOVE: ("moved", _decode_move),
    TAG_ADD: ("added", _decode_file_1),
}
_REPEATED_2: _Decoders = {**_REPEATED, TAG_ADD: ("added", _decode_file_2)}


def decode_edit(
    data: bytes, file: str | None = None, offset: int | None = None, *, format_version: int = 1
) -> VersionEdit:
    """Decodes an edit. `file` and `offset` say where it was read, for the error."""
    try:
        return _decode(data, format_version)
    except ValueError as error:
        raise CorruptionError(f"version edit cannot be read: {error}", file, offset) from error


def _fields(data: bytes) -> Iterable[tuple[int, bytes]]:
    reader = _Reader(data)
    while reader.left:
        tag = reader.data[reader.at]
        reader.at += 1
        yield tag, reader.bytes(reader.left)


class _Part:
    """The fields of one keyspace, and of the database if it is the default one."""

    def __init__(self, keyspace: int, single: _Decoders, repeated: _Decoders) -> None:
        self.keyspace = keyspace
        self._single = single
        self._repeated = repeated
        self.values: dict[str, Any] = {}
        self._lists: dict[str, list[object]] = defaultdict(list)

    def add(self, tag: int, value: bytes) -> None:
        if tag in self._single:
            name, decode = self._single[tag]
            if name in self.values:
                raise ValueError(f"{name} appears twice")
            self.values[name] = decode(value)
        elif tag in self._repeated:
            name, decode = self._repeated[tag]
            self._lists[name].append(decode(value))
        elif tag < FIRST_OPTIONAL_TAG or tag in _NUMBERS:
            raise ValueError(f"unknown tag {tag}")

    def tree(self) -> TreeEdit:
        values = {**self.values, **{name: tuple(found) for name, found in self._lists.items()}}
        edit = TreeEdit(keyspace=self.keyspace, **values)
        if edit.dropped and edit != TreeEdit(keyspace=self.keyspace, dropped=True):
            raise ValueError(f"keyspace {self.keyspace} is dropped and changed")
        return edit


def _decode(data: bytes, format_version: int) -> VersionEdit:
    numbers = _NUMBERS if format_version == 1 else {**_NUMBERS, **_NUMBERS_2}
    repeated = _REPEATED if format_version == 1 else _REPEATED_2
    parts = [_Part(0, {**numbers, **_SINGLE}, repeated)]
    for tag, value in _fields(data):
        if tag == TAG_KEYSPACE and format_version > 1:
            keyspace = _one_number(MAX_KEYSPACE)(value)
            if any(part.keyspace == keyspace for part in parts):
                raise ValueError(f"keyspace {keyspace} appears twice")
            parts.append(_Part(keyspace, {**_SINGLE, **_SINGLE_2}, repeated))
        else:
            parts[-1].add(tag, value)
    names = {name for name, _ in numbers.values()}
    first = parts[0].values
    of_database = {name: first.pop(name) for name in names & first.keys()}
    trees = tuple(part.tree() for part in parts)
    return VersionEdit(**of_database, trees=trees if trees[0].changes else trees[1:])
