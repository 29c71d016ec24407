"""A record of what a database was asked and what it acknowledged, kept outside of it.

The writer appends a pending mark with the whole batch before each write and an acknowledgement after it;
both are single O_APPEND writes, so they survive a kill of the writer exactly as far as they were made.
After a crash `settle` compares what the database holds with what it must and may hold. A batch that was
pending may be there or not, but wholly; the answer is appended too, so that the next crash starts from it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# (b"p", key, value) | (b"d", key) | (b"r", start, stop), (b"t", key, value): a put that expires in the far future, and
# (b"x", key, value): one that is expired already. (b"s", key, value): a put from a file object; (b"i", key, value): an
# ingested one.
Edit = tuple[bytes, ...]
Batch = list[Edit]
PUTS = (b"p", b"t", b"s", b"i")

_HEAD = struct.Struct("<IIcIB")  # crc, length of the body, kind, batch number, sync
_PART = struct.Struct("<I")
PENDING, ACKED, FAILED, APPLIED, ABSENT, OPENED, CUT = b"P", b"A", b"F", b"Y", b"N", b"O", b"C"


def apply(model: dict[bytes, bytes], batch: Batch) -> None:
    """What a batch does to a plain dict."""
    for edit in batch:
        match edit:
            case (b"p" | b"t" | b"s" | b"i", key, value):
                model[key] = value
            case (b"d", key) | (b"x", key, _):
                model.pop(key, None)
            case (b"r", start, stop):
                for key in [k for k in model if start <= k < stop]:
                    del model[key]
            case _:
                raise ValueError(f"no such edit: {edit!r}")


def encode(batch: Batch) -> bytes:
    out = []
    for edit in batch:
        out.append(bytes([len(edit)]))
        for part in edit:
            out += [_PART.pack(len(part)), part]
    return b"".join(out)


def decode(data: bytes) -> Batch:
    batch: Batch = []
    at = 0
    while at < len(data):
        count, at = data[at], at + 1
        parts = []
        for _ in range(count):
            (n,) = _PART.unpack_from(data, at)
            parts.append(data[at + 4 : at + 4 + n])
            at += 4 + n
        batch.append(tuple(parts))
    return batch


class Writer:
    """Appends to one oracle file; one writer (thread) per file."""

    def __init__(self, path: str | os.PathLike[str], alone: bool = True) -> None:
        self.next = max((e.number + 1 for e in read(Path(path))), default=0)
        if alone:
            # Beside another writer this would take marks away that are being made at this moment.
            _cut_torn_end(Path(path))
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def _append(self, kind: bytes, number: int, sync: bool = False, body: bytes = b"") -> None:
        rest = _HEAD.pack(0, len(body), kind, number, sync)[4:] + body
        record = struct.pack("<I", zlib.crc32(rest)) + rest
        if os.write(self._fd, record) != len(record):
            raise OSError("the oracle itself cannot be written")

    def pending(self, batch: Batch, sync: bool) -> int:
        number = self.next
        self.next += 1
        self._append(PENDING, number, sync, encode(batch))
        return number

    def acked(self, number: int) -> None:
        self._append(ACKED, number)

    def failed(self, number: int) -> None:
        """The write raised: like a pending one, it may have happened or not."""
        self._append(FAILED, number)

    def opened(self) -> None:
        self._append(OPENED, 0)

    def cut(self) -> None:
        """The power goes now. A dying file system may still say yes to a sync that it never finished, so no
        acknowledgement counts from here to the next open."""
        self._append(CUT, 0)

    def settled(self, number: int, there: bool) -> None:
        self._append(APPLIED if there else ABSENT, number)

    def close(self) -> None:
        os.close(self._fd)


def restart(path: Path, found: Mapping[bytes, bytes]) -> None:
    """Replaces the record by one whose only batch made `found`, which the database held when nothing was uncertain."""
    fresh = path.with_name(path.name + ".fresh")
    fresh.unlink(missing_ok=True)
    book = Writer(fresh)
    book.settled(book.pending([(b"p", key, value) for key, value in found.items()], True), True)
    book.close()
    fresh.rename(path)


@dataclass(slots=True)
class Entry:
    number: int
    batch: Batch
    sync: bool
    status: bytes

    @property
    def certain(self) -> bool:
        return self.status in (ACKED, APPLIED, ABSENT)


def records(path: Path) -> Iterator[tuple[bytes, int, bool, bytes]]:
    # A writer that was killed before its first mark left no file: it asked for nothing.
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while len(data) - at >= _HEAD.size:
        crc, n, kind, number, sync = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + n
        if end > len(data):
            return
        if zlib.crc32(data[at + 4 : end]) != crc:
            raise ValueError(f"{path}: the oracle is damaged at {at}")
        yield kind, number, bool(sync), data[at + _HEAD.size : end]
        at = end


def _cut_torn_end(path: Path) -> None:
    """A kill inside a write may leave part of a mark: it was never made."""
    if path.exists():
        whole = sum(_HEAD.size + len(body) for *_, body in records(path))
        if whole < path.stat().st_size:
            os.truncate(path, whole)


def read(path: Path) -> list[Entry]:
    """All batches in order, each with the last that is known of it."""
    entries: dict[int, Entry] = {}
    dead = False
    for kind, number, sync, body in records(path):
        if kind == PENDING:
            entries[number] = Entry(number, decode(body), sync, PENDING)
        elif kind in (OPENED, CUT):
            dead = kind == CUT
        elif not (dead and kind == ACKED):
            entries[number].status = kind
    return list(entries.values())


def settled_state(path: Path) -> dict[bytes, bytes]:
    """What the database holds, if nothing is uncertain."""
    model: dict[bytes, bytes] = {}
    for entry in read(path):
        if not entry.certain:
            raise ValueError(f"{path}: batch {entry.number} is uncertain")
        if entry.status != ABSENT:
            apply(model, entry.batch)
    return model


def times_opened(path: Path) -> int:
    return sum(kind == OPENED for kind, *_ in records(path))


@dataclass(slots=True)
class Finding:
    """How a database compares with its oracle: problems in words, and what became of open questions."""

    problems: list[str]
    settled: dict[int, bool]


def difference(found: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> str:
    lost = [k for k in wanted if k not in found]
    invented = [k for k in found if k not in wanted]
    wrong = [k for k in wanted if k in found and found[k] != wanted[k]]
    named = {"lost": lost, "invented": invented, "wrong": wrong}
    return ", ".join(f"{len(keys)} {word} {keys[:3]}" for word, keys in named.items())


def settle(entries: list[Entry], found: Mapping[bytes, bytes]) -> Finding:
    """For histories with at most one uncertain batch, the last: the outcome of a kill."""
    model: dict[bytes, bytes] = {}
    for entry in entries:
        if entry.status in (ACKED, APPLIED):
            apply(model, entry.batch)
        elif not entry.certain and entry is not entries[-1]:
            raise ValueError("an uncertain batch that is not the last; use settle_failed")
    if not entries or entries[-1].certain:
        return Finding([] if found == model else [difference(found, model)], {})
    after = dict(model)
    apply(after, entries[-1].batch)
    if found == after:
        return Finding([], {entries[-1].number: True})
    if found == model:
        return Finding([], {entries[-1].number: False})
    return Finding([f"neither before nor after the pending batch: {difference(found, model)}"], {})


def settle_prefix(entries: list[Entry], found: Mapping[bytes, bytes]) -> Finding:
    """For a power cut: of the batches that no earlier cut settled, a prefix must be there, and in it every
    synced batch that was acknowledged."""
    model: dict[bytes, bytes] = {}
    fresh = [entry for entry in entries if entry.status not in (APPLIED, ABSENT)]
    for entry in entries:
        if entry.status == APPLIED:
            apply(model, entry.batch)
    floor = max((i for i, e in enumerate(fresh, 1) if e.sync and e.status == ACKED), default=0)
    matches = []
    for count in range(len(fresh) + 1):
        if count:
            apply(model, fresh[count - 1].batch)
        if model == found:
            matches.append(count)
    if not matches:
        return Finding([f"no prefix of the writes: {difference(found, model)} against all of them"], {})
    if matches[-1] < floor:
        return Finding([f"the first {matches[-1]} batches are there, but {floor} were synced"], {})
    return Finding([], {entry.number: i < matches[-1] for i, entry in enumerate(fresh)})


def settle_failed(entries: list[Entry], found: Mapping[bytes, bytes]) -> Finding:
    """For histories with failed batches anywhere: each key must hold what its last certain batch left or
    what a later uncertain one wrote, and each uncertain batch must be wholly there or wholly absent."""
    allowed: dict[bytes, set[bytes | None]] = {}
    writer: dict[bytes, int] = {}  # the last batch, certain or not, that touched the key
    for entry in entries:
        if entry.status == ABSENT:
            continue
        before = dict.fromkeys(allowed)
        _touch(entry, before, allowed, writer)
    problems = [
        f"{key!r} holds {found.get(key)!r}, allowed {sorted(map(repr, values))}"
        for key, values in allowed.items()
        if found.get(key) not in values
    ]
    problems += [f"invented {key!r}" for key in found if key not in allowed]
    for entry in entries:
        if not entry.certain:
            problems += _half_done(entry, found, writer)
    return Finding(problems, {})


def _touch(entry: Entry, known: Mapping[bytes, None], allowed: dict, writer: dict[bytes, int]) -> None:
    outcome: dict[bytes, bytes | None] = {}
    for edit in entry.batch:
        if edit[0] == b"r":
            outcome.update({k: None for k in {*known, *outcome} if edit[1] <= k < edit[2]})
        else:
            outcome[edit[1]] = edit[2] if edit[0] in PUTS else None
    for key, value in outcome.items():
        if entry.certain:
            allowed[key] = {value}
        else:
            allowed.setdefault(key, {None}).add(value)
        writer[key] = entry.number


def _half_done(entry: Entry, found: Mapping[bytes, bytes], writer: Mapping[bytes, int]) -> list[str]:
    """Puts of distinct values say whether the batch is there; keys written again later say nothing."""
    last = {edit[1]: edit[2] for edit in entry.batch if edit[0] in PUTS}
    if any(edit[0] not in PUTS for edit in entry.batch):
        return []
    there = {found.get(key) == value for key, value in last.items() if writer[key] == entry.number}
    return [f"batch {entry.number} is half there"] if len(there) > 1 else []
