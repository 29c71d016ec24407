"""`Cache.check`: whether the keyspaces of a cache agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lsmkv.cache.store import ENTRY, NUMBER, TOTALS, entry_fields

if TYPE_CHECKING:
    from lsmkv.cache.store import EntryStore


def problems(store: EntryStore) -> list[str]:
    """Say what is wrong. The caller holds the lock."""
    entries = dict(store.scan(store.index))
    return [*_totals(store, entries), *_log(store, entries), *_secondary(store, entries)]


def _totals(store: EntryStore, entries: dict[bytes, bytes]) -> Iterator[str]:
    live = sum(entry_fields(entry)[2] for entry in entries.values())
    if (live, len(entries)) != (store.live, store.count):
        yield f"{len(entries)} entries of {live} bytes are counted as {store.count} of {store.live}"


def _log(store: EntryStore, entries: dict[bytes, bytes]) -> Iterator[str]:
    positions = {key for key, _ in store.scan(store.values)}
    queued = {key: record[TOTALS.size :] for key, record in store.scan(store.queue)}
    for raw, entry in entries.items():
        if entry[:8] not in positions:
            yield f"{raw!r} has no value at {NUMBER.unpack_from(entry)[0]}"
        if queued.get(entry[:8]) != raw:
            yield f"{raw!r} is not in the queue at {NUMBER.unpack_from(entry)[0]}"


def _secondary(store: EntryStore, entries: dict[bytes, bytes]) -> Iterator[str]:
    expiring = {entry[8:16] + raw for raw, entry in entries.items() if any(entry[8:16])}
    tagged = {entry[ENTRY.size :] + raw for raw, entry in entries.items() if len(entry) > ENTRY.size}
    for name, keyspace, expected in (("expiries", store.expiries, expiring), ("tags", store.tags, tagged)):
        found = {key for key, _ in store.scan(keyspace)}
        for key in sorted(found ^ expected):
            yield f"{name} {'lacks' if key in expected else 'has a stale'} {key!r}"
