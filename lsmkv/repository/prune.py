"""Listing the versions in a repository, and removing old ones with the objects that only they need."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from lsmkv.repository import version as versions
from lsmkv.repository.lock import PRUNE, RepositoryLock
from lsmkv.repository.store import Store, open_store
from lsmkv.repository.transfer import Progress
from lsmkv.repository.version import DATA, OBJECT, VERSIONS, Backup


def backups(url: Any, *, storage_options: Mapping[str, Any] | None = None) -> list[Backup]:
    """Return the versions in the repository of backups at `url`, oldest first.

    Raises `IOError` if the store fails, `CorruptionError` if a version is damaged.

    >>> with lsmkv.open("people.db") as db:
    ...     version = lsmkv.backup(db, "backups")
    >>> lsmkv.backups("backups")[-1].id == version.id
    True
    """
    store = open_store(url, storage_options)
    return [versions.load(store, each) for each in versions.list_ids(store)]


def prune_backups(
    url: Any,
    keep: int,
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[Backup]:
    """Remove all versions but the newest `keep`, with the objects that no other version needs. Return the removed ones.

    Objects of interrupted backups are removed too. `progress(object, done, total)` is called with numbers of objects.
    Raises `LockError` while a backup runs, and `CorruptionError`, before anything is removed, if a version is damaged:
    what it needs is not known.

    >>> with lsmkv.open("people.db") as db:
    ...     versions = [lsmkv.backup(db, "backups") for _ in range(3)]
    >>> _ = lsmkv.prune_backups("backups", keep=1)
    >>> len(lsmkv.backups("backups"))
    1
    """
    keep = index(keep)
    if keep < 1:
        raise ValueError("keep must be at least 1")
    store = open_store(url, storage_options)
    with RepositoryLock(store, PRUNE) as lock:
        found = [versions.load(store, each) for each in versions.list_ids(store)]
        removed, kept = found[:-keep], found[-keep:]
        # The versions first: an interrupted prune leaves objects without a version, never the reverse.
        for each in removed:
            store.delete(VERSIONS + each.id)
        unused = _unused(store, kept)
        for done, name in enumerate(unused):
            if progress is not None:
                progress(name, done, len(unused))
            store.delete(name)
            lock.refresh()
        if progress is not None:
            progress("", len(unused), len(unused))
    return removed


def _unused(store: Store, kept: list[Backup]) -> list[str]:
    """The objects that no version in `kept` needs. Objects with other names are not ours."""
    needed = {name for each in kept for name in each.objects}
    return sorted(name for name in store.list(DATA) if OBJECT.match(name) and name not in needed)
