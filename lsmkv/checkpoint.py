"""A checkpoint: a second database with the state of one moment. Tables never change, so hard links
suffice.
"""

from __future__ import annotations

import errno
import os
import shutil

from lsmkv import filenames
from lsmkv.errors import IOError
from lsmkv.version.manifest import (
    ManifestState,
    ManifestWriter,
    io_errors,
    open_above_stdio,
    replace_file,
    snapshot_edit,
    sync_directory,
    sync_file,
    write_current,
)
from lsmkv.version.version import Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.table.table import Table
from lsmkv_ext.port.uninterruptible import uninterruptible

# Errors of link(2) that mean "not here", not "not at all".
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})


def create(versions: VersionSet, dest: str) -> None:
    """Builds in a folder beside `dest` and renames it: `dest` is a whole database or not there."""
    if os.path.lexists(dest):
        raise IOError(errno.EEXIST, "the destination exists", dest)
    with io_errors("checkpoint", dest):
        _create(versions, dest)


def _create(versions: VersionSet, dest: str) -> None:
    working = dest + ".checkpoint"

    def moment() -> tuple[Version, int, int, dict[int, Table]]:
        with versions.lock:
            # Holding the tables keeps their files from being removed while they are linked.
            return versions.current, versions.state.seed, versions.state.last_seq, dict(versions.tables)

    version, seed, last_seq, held = uninterruptible(moment)
    os.mkdir(working, 0o700)
    try:
        for f in version.files():
            link_or_copy(
                filenames.table_path(versions.directory, f.number), filenames.table_path(working, f.number)
            )
        highest = max((f.number for f in version.files()), default=0)
        state = ManifestState(0, version, seed=seed, next_file=highest + 2, last_seq=last_seq, logged=False)
        ManifestWriter(working, highest + 1, snapshot_edit(state, "checkpoint", 0)).close()
        write_current(working, highest + 1)
        replace_file(working, filenames.OPTIONS, versions.options.encode())
        os.rename(working, dest)
        sync_directory(os.path.dirname(dest))
    except BaseException:
        shutil.rmtree(working, ignore_errors=True)
        raise
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
    read = open_above_stdio(source, os.O_RDONLY)
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
