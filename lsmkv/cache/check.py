"""`Cache.check`: whether the keyspaces of a cache agree with each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lsmkv.errors import Error
from lsmkv_ext.entry_log import decode_entry, decode_number, decode_record

if TYPE_CHECKING:
    from lsmkv.cache.store import EntryStore


def problems(store: EntryStore) -> list[str]:
    """Say what is wrong. The caller holds the lock."""
    if store.transaction is not None:
        raise Error("check is not possible in a transaction")
    entries = dict(store.scan(store.index))
    return [*_totals(store, entries), *_log(store, entries), *_secondary(store, entries)]


def _totals(store: EntryStore, entries: dict[bytes, bytes]) -> Iterator[str]:
    live = sum(decode_entry(entry)[2] for entry in entries.values())
    if (live, len(entries)) != (store.live, store.count):
        yield f"{len(entries)} entries of {live} bytes are counted as {store.count} of {store.live}"


def _log(store: EntryStore, entries: dict[bytes, bytes]) -> Iterator[str]:
    stored = {
        (number, position)
        for number, segment in enumerate(store.segments)
        for position in segment.iterator(include_value=False)
    }
    queued = {key: decode_record(record)[2] for key, record in store.scan(store.queue)}
    for raw, entry in entries.items():
        if (decode_entry(entry)[4], entry[:8]) not in stored:
            yield f"{raw!r} has no value at {decode_number(entry)}"
        if queued.get(entry[:8]) != raw:
            yield f"{raw!r} is not in the queue at {decode_number(entry)}"


def _secondary(store: EntryStore, entries: dict[bytes, bytes]) -> Iterator[str]:
    expiring = {entry[8:16] + raw for raw, entry in entries.items() if any(entry[8:16])}
    tagged = {decode_entry(entry)[5] + raw for raw, entry in entries.items() if decode_entry(entry)[5]}
    for name, keyspace, expected in (("expiries", store.expiries, expiring), ("tags", store.tags, tagged)):
        found = {key for key, _ in store.scan(keyspace)}
        for key in sorted(found ^ expected):
            yield f"{name} {'lacks' if key in expected else 'has a stale'} {key!r}"
