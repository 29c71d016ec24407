"""Turns a trace into the states a disk may hold after a power cut at any point of it.

`Disk` follows the trace. For every file it keeps the bytes known to be on disk and the changes since the
last sync, in order; for the directory the names known to be on disk and the operations since its last
sync. A crash state picks which of the unsynced changes made it. The model is the strict one that POSIX
leaves open: syncing a file does not sync its name, pages reach the disk in any order, a page may hold any
of its past contents, a new size may arrive without its bytes (zeros), and the reverse.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .iofault import Op
from .trace import Record

PAGE = 4096


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes at an offset, or (data is None) a new size."""

    offset: int
    data: bytes | None

    @property
    def end(self) -> int:
        return self.offset if self.data is None else self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Content:
    """A file: its bytes, then zeros up to its size (a preallocated log is nearly all zeros)."""

    data: bytes = b""
    size: int = 0

    def whole(self) -> bytes:
        return self.data[: self.size].ljust(self.size, b"\0")


@dataclass(slots=True)
class Inode:
    durable: Content = Content()
    pending: list[Change] = field(default_factory=list)
    size: int = 0  # as the running process sees it

    def change(self, change: Change) -> None:
        self.pending.append(change)
        self.size = change.end if change.data is None else max(self.size, change.end)

    def sync(self) -> None:
        if self.pending:
            self.durable = apply(self.durable, self.pending)
            self.pending = []


@dataclass(frozen=True, slots=True)
class Name:
    """An unsynced directory operation: `inode` is the file that `path` now names, None removes the name."""

    path: str
    inode: int | None
    old: str | None = None  # the name a rename took it from


@dataclass(slots=True)
class Disk:
    inodes: dict[int, Inode] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)  # as the running process sees them
    durable_names: dict[str, int] = field(default_factory=dict)
    pending_names: list[Name] = field(default_factory=list)
    _ids: dict[int, int] = field(default_factory=dict)  # the kernel's number -> ours, which is never reused
    _next: int = 1

    def load(self, folder: Path) -> None:
        """Takes the files of a folder as already durable: the database as it was before the trace."""
        for entry in sorted(folder.iterdir()):
            if entry.is_file():
                data = entry.read_bytes()
                key = self._new(entry.stat().st_ino)
                self.inodes[key] = Inode(Content(data, len(data)), [], len(data))
                self.names[entry.name] = self.durable_names[entry.name] = key

    def _new(self, number: int) -> int:
        key = self._next
        self._next += 1
        self._ids[number] = key
        self.inodes[key] = Inode()
        return key

    def file(self, record: Record) -> Inode:
        return self.inodes[self._ids[record.inode]]

    def follow(self, record: Record) -> None:
        """Takes one record of the trace into the model."""
        if record.done:
            handler = _HANDLERS.get(record.op)
            if handler:
                handler(self, record)

    def _open(self, record: Record) -> None:
        if record.directory:
            return
        if record.created:
            key = self._new(record.inode)
            self.names[record.path] = key
            self.pending_names.append(Name(record.path, key))
        elif record.truncates:
            self.file(record).change(Change(0, None))

    def _write(self, record: Record) -> None:
        self.file(record).change(Change(record.offset, record.data))

    def _truncate(self, record: Record) -> None:
        self.file(record).change(Change(record.length, None))

    def _allocate(self, record: Record) -> None:
        inode, end = self.file(record), record.offset + record.length
        if end > inode.size:
            inode.change(Change(end, None))

    def _sync(self, record: Record) -> None:
        if record.directory:
            for op in self.pending_names:
                _apply_name(self.durable_names, op)
            self.pending_names = []
        elif record.inode:
            self.file(record).sync()

    def _rename(self, record: Record) -> None:
        key = self.names.pop(record.path)
        self.names[record.path2] = key
        self.pending_names.append(Name(record.path2, key, record.path))

    def _unlink(self, record: Record) -> None:
        self.names.pop(record.path)
        self.pending_names.append(Name(record.path, None))

    def _link(self, record: Record) -> None:
        key = self.names[record.path]
        self.names[record.path2] = key
        self.pending_names.append(Name(record.path2, key))


_HANDLERS: dict[Op, Callable[[Disk, Record], None]] = {
    Op.OPEN: Disk._open,
    Op.WRITE: Disk._write,
    Op.PWRITE: Disk._write,
    Op.STORE: Disk._write,
    Op.FTRUNCATE: Disk._truncate,
    Op.FALLOCATE: Disk._allocate,
    Op.FSYNC: Disk._sync,
    Op.FDATASYNC: Disk._sync,
    Op.MSYNC: Disk._sync,
    Op.RENAME: Disk._rename,
    Op.UNLINK: Disk._unlink,
    Op.LINK: Disk._link,
}


def _apply_name(names: dict[str, int], op: Name) -> None:
    if op.old is not None:
        names.pop(op.old, None)
    if op.inode is None:
        names.pop(op.path, None)
    else:
        names[op.path] = op.inode


def apply(base: Content, changes: Iterable[Change]) -> Content:
    out, size = bytearray(base.data), base.size
    for change in changes:
        if change.data is None:
            size = change.offset
            del out[size:]
        else:
            if len(out) < change.offset:
                out.extend(bytes(change.offset - len(out)))
            out[change.offset : change.end] = change.data
            size = max(size, change.end)
    return Content(bytes(out), size)


# ---- crash states ------------------------------------------------------------------------------

State = dict[str, Content]
Pick = Callable[[Inode], Content]


def keep(inode: Inode) -> Content:
    return apply(inode.durable, inode.pending)


def drop(inode: Inode) -> Content:
    return inode.durable


def zero_fill(inode: Inode) -> Content:
    """The sizes arrived, the bytes did not."""
    return Content(inode.durable.data, max(inode.durable.size, inode.size))


def drop_one(victim: Change) -> Pick:
    return lambda inode: apply(inode.durable, [c for c in inode.pending if c is not victim])


def random_pages(rng: random.Random) -> Pick:
    """Every page holds the content it had after a random number of the writes to it."""

    def pick(inode: Inode) -> Content:
        if not inode.pending:
            return inode.durable
        size = random_size(inode, rng)
        out = bytearray(inode.durable.data[:size])
        spans = [range(c.offset // PAGE, -(-c.end // PAGE)) for c in inode.pending if c.data]
        for page in sorted({page for span in spans for page in span}):
            start, stop = page * PAGE, min((page + 1) * PAGE, size)
            if stop > start:
                touching = [c for c in inode.pending if c.data is None or overlaps(c, page)]
                content = apply(inode.durable, touching[: rng.randint(0, len(touching))])
                out.extend(bytes(max(0, stop - len(out))))
                out[start:stop] = content.data[start:stop].ljust(stop - start, b"\0")
        return Content(bytes(out), size)

    return pick


def random_size(inode: Inode, rng: random.Random) -> int:
    """One of the sizes the file had since its last sync, or one in between."""
    sizes = [inode.durable.size]
    for change in inode.pending:
        sizes.append(change.end if change.data is None else max(sizes[-1], change.end))
    return rng.choice([sizes[0], sizes[-1], rng.randint(min(sizes), max(sizes))])


def overlaps(change: Change, page: int) -> bool:
    return change.offset < (page + 1) * PAGE and change.end > page * PAGE


def names_with(disk: Disk, chosen: Iterable[Name]) -> dict[str, int]:
    names = dict(disk.durable_names)
    for op in chosen:
        _apply_name(names, op)
    return names


def state(disk: Disk, pick: Pick, names: dict[str, int]) -> State:
    done: dict[int, Content] = {}
    for key in names.values():
        if key not in done:
            done[key] = pick(disk.inodes[key])
    return {path: done[key] for path, key in names.items()}


@dataclass(frozen=True, slots=True)
class Crash:
    """One crash state: what kind it is, and whether every change survived (as in a kill)."""

    kind: str
    files: State
    complete: bool = False


def crashes(disk: Disk, rng: random.Random, randoms: int = 3) -> Iterator[Crash]:
    """The crash states of the present point of the trace."""
    pending = disk.pending_names
    all_names, no_names = names_with(disk, pending), dict(disk.durable_names)
    yield Crash("keep all", state(disk, keep, all_names), True)
    yield Crash("drop all", state(disk, drop, all_names))
    yield Crash("drop all and names", state(disk, drop, no_names))
    yield Crash("zero fill", state(disk, zero_fill, all_names))
    if pending:
        yield Crash("drop names", state(disk, keep, no_names))
        cut = rng.randint(0, len(pending))
        yield Crash("names up to", state(disk, random_pages(rng), names_with(disk, pending[:cut])))
    changes = [c for inode in disk.inodes.values() for c in inode.pending]
    for victim in changes[-8:]:
        yield Crash("drop one", state(disk, drop_one(victim), all_names))
    for _ in range(randoms if changes else 0):
        yield Crash("random pages", state(disk, random_pages(rng), all_names))


def write_state(folder: Path, files: State) -> None:
    """Puts a crash state on disk, with holes where it holds pages of zeros."""
    folder.mkdir(parents=True)
    zeros = bytes(PAGE)
    for name, content in files.items():
        fd = os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
        try:
            used = min(len(content.data), content.size)
            for at in range(0, used, PAGE):
                page = content.data[at : min(at + PAGE, used)]
                if page != zeros:
                    os.pwrite(fd, page, at)
            os.ftruncate(fd, content.size)
        finally:
            os.close(fd)
