"""Creating and dropping keyspaces, and the upgrade to the format that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsmkv.compaction.scheduler import Scheduler
from lsmkv.log_supply import LogSupply
from lsmkv.options import Options
from lsmkv.version.edit import TreeEdit, VersionEdit
from lsmkv.version.manifest import LATEST_FORMAT
from lsmkv.version.stored_tree import StoredTree
from lsmkv_ext.port import zstd


def create(scheduler: Scheduler, logs: LogSupply, name: str, options: Mapping[str, Any]) -> StoredTree:
    """Returns the tree of a keyspace, which is created unless it exists. `options` are plain data."""
    versions = scheduler.versions
    _require_codecs(versions.options.for_keyspace(options))
    with versions.engine.exclusive():
        versions.engine.require_writable()
        with versions.commit:
            known = versions.tree_named(name)
            if known is not None:
                return known
            _upgrade(scheduler, logs)
            keyspace = versions.state.next_keyspace
            tree = TreeEdit(keyspace=keyspace, name=name, options=options)
            versions.apply(VersionEdit(next_keyspace=keyspace + 1, trees=(tree,), reason=f"create keyspace {name}"))
            return versions.trees[keyspace]


def set_options(tree: StoredTree, options: Mapping[str, Any]) -> None:
    """Changes the options given for a keyspace, unless they are the same."""
    _require_codecs(tree.versions.options.for_keyspace(options))
    with tree.versions.commit:
        after = {**tree.state.options, **options}
        if tree.state.options != after:
            tree.apply(options=after, reason="options")


def drop(scheduler: Scheduler, tree: StoredTree) -> None:
    """Removes a keyspace with all its tables. Older writes of all keyspaces are flushed first: otherwise the drop could
    survive a power cut and an earlier write not.
    """
    versions = scheduler.versions
    with versions.engine.exclusive():
        versions.engine.require_writable()
        scheduler.flusher.flush_in_turn()
        with versions.lock:
            for claim in scheduler.work_of(tree).claims.running:
                scheduler.running.supersede(claim.plan)
        tree.apply(dropped=True, reason=f"drop keyspace {tree.state.name}")
    scheduler.status.update_pressure()
    scheduler.wake()


def _require_codecs(options: Options) -> None:
    """Raises FormatError if the options need a codec that is not installed."""
    if options.needs_zstd:
        zstd.require()


def upgrade(scheduler: Scheduler, logs: LogSupply) -> None:
    """Gives the database the latest format. One that has it already stays as it is."""
    versions = scheduler.versions
    with versions.engine.exclusive():
        versions.engine.require_writable()
        _upgrade(scheduler, logs)


def _upgrade(scheduler: Scheduler, logs: LogSupply) -> None:
    """The caller holds the writer's turn. The manifest comes first: a log of format 2 in a database of format 1 would
    look damaged.
    """
    versions = scheduler.versions
    if versions.state.format_version == LATEST_FORMAT:
        return
    versions.apply(VersionEdit(reason="upgrade"), format_version=LATEST_FORMAT)
    logs.discard_spare()
    scheduler.flusher.rotate()
    versions.engine.format_2 = True
