"""Checkpoint: a second database with the current state. Tables never change, so hard links suffice."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from lsmkv import filenames
from lsmkv.errors import IOError
from lsmkv.files import io_errors, is_named, open_above_stdio, open_regular, replace_file, sync_directory, sync_file
from lsmkv.version.current import write_current
from lsmkv.version.manifest import ManifestState, ManifestWriter, snapshot_edit
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.port.file import Descriptor
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.table.table import Table

# Errors of link(2) for files that can still be copied.
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})


# The directory inside `dest`.checkpoint that becomes `dest`. No database has this layout, so it marks the remains of
# a killed checkpoint.
PARTIAL = "partial"


def create(versions: VersionSet, dest: str) -> None:
    """Builds the database in a directory beside `dest` and renames it: `dest` is complete or missing."""
    with io_errors("checkpoint", dest):
        _refuse_existing(dest)
        with _working_directory(dest) as working:
            _refuse_existing(dest)
            _build(versions, working)
            os.rename(working, dest)
            sync_directory(os.path.dirname(dest))


def _refuse_existing(dest: str) -> None:
    if os.path.lexists(dest):
        raise IOError(errno.EEXIST, "the destination exists", dest)


@contextmanager
def _working_directory(dest: str) -> Iterator[str]:
    """An empty directory, locked against other checkpoints to `dest`. Removed unless it was renamed."""
    around = dest + ".checkpoint"
    working = os.path.join(around, PARTIAL)
    lock = _lock_directory(around)
    try:
        _remove_left_over(around, working)
        os.mkdir(working, 0o700)
        try:
            yield working
        except BaseException:
            shutil.rmtree(working, ignore_errors=True)
            raise
    finally:
        try:
            with suppress(OSError):  # not empty: the files of others
                os.rmdir(around)
        finally:
            lock.close()


def _remove_left_over(around: str, working: str) -> None:
    """Removes the remains of a killed checkpoint. Refuses a directory with anything else in it."""
    inside = os.listdir(working) if os.path.lexists(working) else []
    foreign = {*os.listdir(around)} - {PARTIAL} or {name for name in inside if filenames.parse(name) is None}
    if foreign:
        raise IOError(errno.EEXIST, f"contains {min(foreign)}, which is not from a checkpoint", around)
    if os.path.lexists(working):
        shutil.rmtree(working)


def _lock_directory(path: str) -> Descriptor:
    while True:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        with io_errors("open", path):
            lock = Descriptor(open_above_stdio(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        try:
            fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_named(lock.fd, path):
                return lock
        except BaseException as error:
            lock.close()
            if isinstance(error, BlockingIOError):
                raise IOError(errno.EBUSY, "another checkpoint to this destination is running", path) from None
            raise
        # Another checkpoint ended and removed the directory.
        lock.close()


def _build(versions: VersionSet, working: str) -> None:
    def moment() -> tuple[ManifestState, dict[int, Table]]:
        with versions.lock:
            # Holding the tables keeps their files from being removed while they are linked.
            return versions.state, dict(versions.tables)

    state, held = uninterruptible(moment)
    try:
        for f in state.files():
            link_or_copy(filenames.table_path(versions.directory, f.number), filenames.table_path(working, f.number))
        # A rotation came before the flush of these tables, so their value logs are sealed.
        values = sorted({use.number for f in state.files() for use in f.value_logs})
        for number in values:
            source = filenames.value_log_path(versions.directory, number)
            link_or_copy(source, filenames.value_log_path(working, number))
        highest = max([0, *values, *(f.number for f in state.files())])
        clock = max(state.clock, versions.engine.clock) if state.format_version > 1 else 0
        state = replace(state, next_file=highest + 2, log_number=0, logged=False, clock=clock)
        first = snapshot_edit(state, "checkpoint", 0)
        ManifestWriter.create(working, highest + 1, first, state.format_version).close()
        write_current(working, highest + 1)
        replace_file(working, filenames.OPTIONS, versions.options.encode())
    finally:
        del held


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        copy_file(source, target)


def copy_file(source: str, target: str) -> None:
    """A durable copy with our permissions; `target` must not exist."""
    read = open_regular(source, os.O_RDONLY)
    try:
        write = open_above_stdio(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(read, "rb", closefd=False) as a, os.fdopen(write, "wb", closefd=False) as b:
                shutil.copyfileobj(a, b, 1 << 20)
            sync_file(write, target)
        finally:
            os.close(write)
    finally:
        os.close(read)
