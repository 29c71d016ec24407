"""Checkpoint: a second database with the current state. Tables never change, so hard links suffice."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from lsmkv import filenames
from lsmkv.compaction.jobs import Jobs
from lsmkv.errors import CorruptionError, IOError
from lsmkv.files import (
    io_errors,
    open_above_stdio,
    open_regular,
    replace_file,
    sync_directory,
    sync_file,
    write_all,
)
from lsmkv.version.current import write_current
from lsmkv.version.edit import TreeEdit, VersionEdit
from lsmkv.version.manifest import ManifestWriter, snapshot_edit
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import TableMeta
from lsmkv.version.version_set import VersionSet
from lsmkv.working_directory import working_directory
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.table.table import Table
from lsmkv_ext.values.reader import ValueLog

# Errors of link(2) for files that can still be copied.
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})

COPY_PIECE = 1 << 20


def create(versions: VersionSet, dest: str) -> None:
    """Builds the database in a directory beside `dest` and renames it: `dest` is complete or missing."""
    with io_errors("checkpoint", dest):
        _refuse_existing(dest)
        with working_directory(dest + ".checkpoint") as working:
            _refuse_existing(dest)
            _build(versions, working)
            os.rename(working, dest)
            sync_directory(os.path.dirname(dest))


@contextmanager
def temporary(versions: VersionSet, around: str) -> Iterator[str]:
    """A checkpoint inside the directory `around` that lasts for the block. A killed one is removed by the next."""
    with io_errors("checkpoint", around), working_directory(around) as working:
        _build(versions, working)
        yield working
        shutil.rmtree(working)


def _refuse_existing(dest: str) -> None:
    if os.path.lexists(dest):
        raise IOError(errno.EEXIST, "the destination exists", dest)


def _build(versions: VersionSet, working: str) -> None:
    source = uninterruptible(lambda: _Source(versions))
    if versions.engine.readonly:
        source.write_memtables(working)
    source.place(working)
    state = source.state
    highest = max([0, *source.value_logs, *(f.number for f in state.files())])
    clock = max(state.clock, versions.engine.clock) if state.format_version > 1 else 0
    state = replace(state, next_file=highest + 2, log_number=0, logged=False, clock=clock)
    first = snapshot_edit(state, "checkpoint", 0)
    ManifestWriter.create(working, highest + 1, first, state.format_version).close()
    write_current(working, highest + 1)
    replace_file(working, filenames.OPTIONS, versions.options.encode())


class _Source:
    """The files of one moment. It holds the tables, so their files stay as long as it exists."""

    def __init__(self, versions: VersionSet) -> None:
        self._versions = versions
        with versions.lock:
            self.state = versions.state
            self._tables = dict(versions.tables)
            self._trees = dict(versions.trees)
            self._memtables = {k: _memtables(tree) for k, tree in self._trees.items()}
        self._written: set[int] = set()  # tables that `write_memtables` wrote
        # Another process may still append to the others. A rotation came before the flush of a table in the directory,
        # so its value logs are sealed.
        self._sealed = {use.number for f in self._named() for use in f.value_logs}

    def _named(self) -> Iterator[TableMeta]:
        """The tables that the manifest of the database names."""
        for f in self.state.files():
            if os.path.dirname(self._tables[f.number].path) == self._versions.directory:
                yield f

    @property
    def value_logs(self) -> list[int]:
        """The numbers of the value logs that the tables point into."""
        return sorted({use.number for f in self.state.files() for use in f.value_logs})

    def write_memtables(self, working: str) -> None:
        """Writes what a read-only handle has replayed from the logs: it cannot flush."""
        numbers = self._versions.numbers
        numbers.bump(max([0, *(log.number for held in self._memtables.values() for m in held for log in m.value_logs)]))
        edits = []
        for keyspace, memtables in self._memtables.items():
            if all(memtable.empty for memtable in memtables):
                continue
            outputs = Jobs(self._trees[keyspace]).write_memtables(memtables, working)["outputs"]
            self._written |= {f.number for f in outputs}
            edits.append(TreeEdit(keyspace=keyspace, added=tuple((0, f) for f in outputs)))
        self.state = replace(self.state)
        self.state.apply(VersionEdit(trees=tuple(edits)))

    def place(self, working: str) -> None:
        """Links or copies the tables and value logs."""
        link = _link_open if self._versions.engine.readonly else _link
        for f in self.state.files():
            if f.number not in self._written:
                link(self._tables[f.number], filenames.table_path(working, f.number))
        ends: dict[int, tuple[int, int]] = {}  # identity and end of each value log
        for use in (use for f in self.state.files() for use in f.value_logs):
            ends[use.number] = use.identity, max(use.end, ends.get(use.number, (0, 0))[1])
        for number, (identity, end) in ends.items():
            log = self._versions.values.open(number, identity)
            target = filenames.value_log_path(working, number)
            if number in self._sealed:
                link(log, target)
            else:
                _copy_open(log, target, end)


def _memtables(tree: StoredTree) -> list[Memtable]:
    state = tree.live.state
    return [] if state is None else list(state.memtables)


def _link(source: Table | ValueLog, target: str) -> None:
    """Links the file of a database that we write, or copies it."""
    try:
        os.link(source.path, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        copy_file(source.path, target)


def _link_open(source: Table | ValueLog, target: str) -> None:
    """The same for a database that another process writes. The name may be gone or that of another file by now, so the
    open file is linked.
    """
    fd = source.descriptor()
    try:
        # With a directory Python calls linkat(2), which can follow this link.
        os.link(f"/proc/self/fd/{fd}", target, src_dir_fd=fd, follow_symlinks=True)
    except OSError as error:
        if error.errno not in NO_LINKS and error.errno != errno.ENOENT:
            raise
        _copy_open(source, target, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _copy_open(source: Table | ValueLog, target: str, size: int) -> None:
    """A durable copy of the first `size` bytes of an open file."""
    fd = source.descriptor()
    try:
        with create_durable(target) as write:
            at = 0
            while at < size:
                piece = os.pread(fd, min(COPY_PIECE, size - at), at)
                if not piece:
                    raise CorruptionError("the file is shorter than it says", source.path, at)
                write(piece)
                at += len(piece)
    finally:
        os.close(fd)


@contextmanager
def create_durable(target: str) -> Iterator[Callable[[bytes], None]]:
    """Creates `target` with our permissions, which must not exist; the block gets a function that appends to it."""
    fd = open_above_stdio(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        yield lambda data: write_all(fd, data, target)
        sync_file(fd, target)
    finally:
        os.close(fd)


def copy_file(source: str, target: str) -> None:
    """A durable copy with our permissions; `target` must not exist."""
    read = open_regular(source, os.O_RDONLY)
    try:
        with create_durable(target) as write:
            while piece := os.read(read, COPY_PIECE):
                write(piece)
    finally:
        os.close(read)
