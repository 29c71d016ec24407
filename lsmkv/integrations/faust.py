"""Faust: a store of tables, `store="lsmkv://"`. Each partition of a table is a database in the table directory.

A write waits in memory until the broker has confirmed a change of its partition. Then the data and the offset of the
change go to the disk in one batch. So an offset on disk never stands for data that is missing, and a restart reads only
what the changelog has beyond it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lsmkv.db import DB
from lsmkv.errors import Error, LockError
from lsmkv.open_database import open_database
from lsmkv.options import Options
from lsmkv.recovery.destroy import destroy
from lsmkv.repository.create import backup
from lsmkv.repository.prune import backups, prune_backups
from lsmkv.repository.restore import restore

try:
    from faust.exceptions import ImproperlyConfigured
    from faust.stores.base import SerializedStore
    from faust.streams import current_event
except ImportError as error:
    raise Error("this module needs Faust: pip install 'lsmkv[faust]'") from error

LOCK_RETRIES = 30  # a second apart: a worker that gives a partition up may take that long


class _Partition:
    """The database of one partition, and the writes whose change the broker has not confirmed."""

    def __init__(self, path: Path, options: Options) -> None:
        self.db: DB = open_database(os.fspath(path), "c", options)
        # A keyspace of its own: the keys of the table may be any bytes.
        self._offsets = self.db.keyspace("offsets")
        self.waiting: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.waiting[key] if key in self.waiting else self.db.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        waiting = dict(self.waiting)
        yield from ((key, value) for key, value in self.db.items() if key not in waiting)
        yield from ((key, value) for key, value in waiting.items() if value is not None)

    def forget(self, key: bytes) -> None:
        """Deletes a key without a change, as an expired one."""
        if key in self.waiting:
            self.waiting[key] = None
        else:
            self.db.delete(key)

    def offset(self) -> int | None:
        stored = self._offsets.get(b"offset")
        return None if stored is None else int(stored)

    def commit(self, changes: Mapping[bytes, bytes | None], offset: int) -> None:
        """Writes changes and their offset in one batch."""
        with self.db.write_batch() as batch:
            for key, value in changes.items():
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            before = self.offset()
            batch.put(b"offset", b"%d" % (offset if before is None else max(before, offset)), keyspace=self._offsets)

    def confirm(self, offset: int) -> None:
        self.commit(self.waiting, offset)
        self.waiting.clear()


class Store(SerializedStore):  # type: ignore[misc]
    """Table storage in databases of lsmkv. The `options` of a table are those of `lsmkv.open`."""

    def __init__(
        self, url: Any, app: Any, table: Any, *, options: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(url, app, table, options=options, **kwargs)
        if table.use_partitioner:
            raise ImproperlyConfigured("a table in lsmkv has the partitions of its source: use_partitioner=False")
        self._options = Options.of(options, {})
        self._partitions: dict[int, _Partition] = {}

    # Partitions --------------------------------------------------------------------------------------------

    def partition_path(self, partition: int) -> Path:
        """The directory of the database of a partition."""
        path: Path = self.app.conf.tabledir / f"{self.table_name}-{partition}.lsmkv"
        return path

    def _partition(self, number: int) -> _Partition:
        if number not in self._partitions:
            path = self.partition_path(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._partitions[number] = _Partition(path, self._options)
        return self._partitions[number]

    def _release(self, number: int) -> None:
        """Closes a partition. Writes without a confirmation are in the changelog, or their events are repeated."""
        partition = self._partitions.pop(number, None)
        if partition is not None:
            partition.db.close()

    async def on_rebalance(
        self, assigned: set[Any], revoked: set[Any], newly_assigned: set[Any], generation_id: int = 0
    ) -> None:
        topics = self.table.changelog_topic.topics
        for tp in revoked:
            if tp.topic in topics:
                self._release(tp.partition)
        standbys = self.app.assignor.assigned_standbys()
        for tp in newly_assigned:
            if tp.topic in topics and tp not in standbys:
                await self._take(tp.partition, generation_id)

    async def _take(self, number: int, generation_id: int) -> None:
        """Opens a partition, which another worker of this machine may just be closing."""
        for attempt in range(LOCK_RETRIES):
            try:
                self._partition(number)
                return
            except LockError:
                if attempt == LOCK_RETRIES - 1:
                    raise
                if generation_id != self.app.consumer_generation_id:
                    return  # assigned anew meanwhile
                await self.sleep(1.0)

    async def need_active_standby_for(self, tp: Any) -> bool:
        """Whether no other worker of this machine has the partition."""
        try:
            self._partition(tp.partition)
        except LockError:
            return False
        return True

    async def on_stop(self) -> None:
        for number in list(self._partitions):
            self._release(number)

    def reset_state(self) -> None:
        """Remove the local data of the table. The changelog stays."""
        for number in list(self._partitions):
            self._release(number)
        for path in self.app.conf.tabledir.glob(f"{self.table_name}-*.lsmkv"):
            destroy(path)

    # Offsets -----------------------------------------------------------------------------------------------

    def persisted_offset(self, tp: Any) -> int | None:
        return self._partition(tp.partition).offset()

    def set_persisted_offset(self, tp: Any, offset: int) -> None:
        self._partition(tp.partition).confirm(offset)

    def apply_changelog_batch(
        self, batch: Iterable[Any], to_key: Callable[[Any], Any], to_value: Callable[[Any], Any]
    ) -> None:
        changes: dict[int, dict[bytes, bytes | None]] = defaultdict(dict)
        offsets: dict[int, int] = {}
        for event in batch:
            message = event.message
            changes[message.partition][message.key] = message.value
            offsets[message.partition] = message.offset
        for number, changed in changes.items():
            self._partition(number).commit(changed, offsets[number])

    # Keys and values ---------------------------------------------------------------------------------------

    def _of_event(self) -> _Partition | None:
        """The partition of the event that is being processed. Its key is in no other."""
        event = current_event()
        if event is None or self.table.is_global:
            return None
        return self._partition(event.message.partition)

    def _active(self) -> Iterator[_Partition]:
        actives = self.app.assignor.assigned_actives()
        topic = self.table.changelog_topic_name
        numbers = {tp.partition for tp in actives if tp.topic == topic}
        for number, partition in list(self._partitions.items()):
            if self.table.is_global or number in numbers:
                yield partition

    def _get(self, key: bytes) -> bytes | None:
        partition = self._of_event()
        if partition is not None:
            return partition.get(key)
        found = (each.get(key) for each in list(self._partitions.values()))
        return next((value for value in found if value is not None), None)

    def _set(self, key: bytes, value: bytes | None) -> None:
        event = current_event()
        if event is None:
            raise RuntimeError("a table changes only while an event is processed")
        self._partition(event.message.partition).waiting[key] = value

    def _del(self, key: bytes) -> None:
        event = current_event()
        if event is not None:
            self._partition(event.message.partition).waiting[key] = None
        for partition in list(self._partitions.values()) if event is None or self.table.is_global else ():
            if partition.get(key) is not None:
                partition.forget(key)

    def _contains(self, key: bytes) -> bool:
        return self._get(key) is not None

    def _iteritems(self) -> Iterator[tuple[bytes, bytes]]:
        for partition in self._active():
            yield from partition.items()

    def _iterkeys(self) -> Iterator[bytes]:
        return (key for key, _ in self._iteritems())

    def _itervalues(self) -> Iterator[bytes | None]:
        return (value for _, value in self._iteritems())

    def _size(self) -> int:
        return sum(1 for _ in self._iteritems())

    def _clear(self) -> None:
        for key in list(self._iterkeys()):
            self._del(key)

    # Backups -----------------------------------------------------------------------------------------------

    def _backups(self, number: int) -> str:
        return f"{self.app.conf.tabledir}/{self.table_name}-{number}.backups"

    async def backup_partition(self, tp: Any, flush: bool = True, purge: bool = False, keep: int = 1) -> None:
        """Back a partition up, with its offset, beside its database. `purge` removes all but `keep` backups."""
        number = getattr(tp, "partition", tp)
        backup(self._partition(number).db, self._backups(number))
        if purge:
            prune_backups(self._backups(number), keep)

    def restore_backup(self, tp: Any, latest: bool = True, backup_id: int = 0) -> None:
        """Replace a partition by its newest backup, or without `latest` by number `backup_id`, from 0 on."""
        number = getattr(tp, "partition", tp)
        versions = backups(self._backups(number))
        version = versions[-1 if latest else backup_id]
        self._release(number)
        destroy(self.partition_path(number))
        restore(self._backups(number), self.partition_path(number), version.id)
        self._partition(number)
