"""The entries of a cache in keyspaces, and the order in which they leave it.

    index     key                  ->  position, expiry, size, kind, tag
    values    position             ->  value
    queue     position             ->  live bytes and number of entries after this change, key
    expiries  expiry, key          ->  nothing; only for entries that expire
    tags      tag, key             ->  nothing; only for entries with a tag

`values` is a log. A position is the number of bytes appended up to the end of an entry, so positions grow, and the
distance between two of them is the space between them. Eviction goes through `queue` from the head of the log and looks
each key up in `index`: an entry with another position, or none, is garbage. It reads no values, and remembers the head,
so it never walks over what it removed. Range deletes cut the log off behind the head, and the tables of `values` are
then dropped unread.

Every change is one batch. It ends with a record of `queue` that has the totals, so the newest record is right after a
crash, and an open reads nothing else.

Changes hold the lock. Reads take none: a value that is not where `index` said has moved, and they ask again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from lsmkv.errors import Error
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.port.finalization import RLock
from lsmkv_ext.port.wall_clock import ManualClock

if TYPE_CHECKING:
    from lsmkv.db import DB
    from lsmkv.keyspace import Keyspace
    from lsmkv.transaction import Transaction

    Writer = WriteBatch | Transaction

T = TypeVar("T")

# An entry of `index`, before its tag. Position and expiry are first: big-endian, they are keys of other keyspaces.
ENTRY = Struct(">QQIB")
TOTALS = Struct(">QQ")
NUMBER = Struct(">Q")
entry_fields = ENTRY.unpack_from
packed = NUMBER.pack

# What an entry takes besides its key and value: its fields, its place in `queue`, and the overhead in blocks.
OVERHEAD = 96
# What a change that appends no value takes in the log.
MARK_SIZE = 32
END = b"\xff"

AHEAD = 256  # records of the queue read at a time
COPIES = 8  # a change copies at most so many times its own size to the end of the log, and one entry more
SWEEP = 64  # expired entries removed by one change
REMOVALS = 1000  # entries removed in one batch


def entry_size(raw: bytes, payload: bytes) -> int:
    """The live bytes of an entry. Its key is in `index` and in `queue`."""
    return 2 * len(raw) + len(payload) + OVERHEAD


class Recency:
    """Which keys were read since eviction last passed them: one byte for each hash, in a fixed amount of memory.

    Two keys with the same hash share it, and both count as read.
    """

    def __init__(self, limit: int) -> None:
        slots = 1 << min(max(limit // 256, 1 << 12), 1 << 24).bit_length() - 1
        self.mask = slots - 1
        self.slots = bytearray(slots)

    def forget(self, raw: bytes) -> bool:
        """Return whether the key was read, and forget it."""
        slot = hash(raw) & self.mask
        was = self.slots[slot]
        self.slots[slot] = 0
        return bool(was)


class EntryStore:
    """The entries of a cache. Keys and values are encoded; expiries are in milliseconds since 1970, 0 for never."""

    def __init__(self, db: DB, limit: int, eviction: str, clock: ManualClock | None) -> None:
        self.db = db
        self.limit = limit
        self.evicts = eviction != "none"
        self.recency = Recency(limit) if eviction == "lru" else None
        self._clock = clock
        self.index = db.keyspace("index")
        self.values = db.keyspace("values", bits_per_key=0)
        self.queue = db.keyspace("queue", bits_per_key=0)
        self.expiries = db.keyspace("expiries", bits_per_key=0)
        self.tags = db.keyspace("tags", bits_per_key=0)
        self._cut_step = max(limit // 32, db.options.write_buffer_size // 16)
        self._lock = RLock()
        self._transaction: Transaction | None = None
        self._owner = 0  # the thread of the transaction
        self._busy = False
        self._known = False  # whether the fields below are those of the last change
        self.live = self.count = self._tail = self._head = self._cut = 0
        self._next_expiry: float = 0
        self._ahead: deque[tuple[int, bytes]] = deque()
        self.evicted = self.expired = 0
        self.change(lambda writer: None)

    def now(self) -> int:
        """The time in milliseconds."""
        return int((time.time() if self._clock is None else self._clock.now) * 1000)

    @property
    def log_bytes(self) -> int:
        return self._tail - self._head

    # Reading -----------------------------------------------------------------------------------------------

    def read(self, raw: bytes) -> tuple[bytes, bytes] | None:
        """Return the entry of a key and its value, or None if it is missing or expired."""
        if self._transaction is None or self._owner != threading.get_ident():
            find, load = self.index.get, self.values.get
        else:
            find, load = self.find, self.load
        entry = find(raw)
        while entry is not None:
            expiry = entry_fields(entry)[1]
            if expiry and expiry <= self.now():
                return None
            payload = load(entry[:8])
            if payload is not None:
                return entry, payload
            # It has moved or is gone.
            before, entry = entry, find(raw)
            if entry == before:
                return None
        return None

    def live_entry(self, raw: bytes) -> bytes | None:
        """Return the entry of a key that has not expired."""
        mine = self._transaction is not None and self._owner == threading.get_ident()
        entry: bytes | None = self.find(raw) if mine else self.index.get(raw)
        return entry if entry is not None and not self.is_expired(entry) else None

    def is_expired(self, entry: bytes) -> bool:
        expiry = entry_fields(entry)[1]
        return bool(expiry) and expiry <= self.now()

    # For the holder of the lock: they see the writes of a transaction.

    def find(self, raw: bytes) -> bytes | None:
        if self._transaction is None:
            return self.index.get(raw)  # type: ignore[no-any-return]
        return self._transaction.get(raw, keyspace=self.index)  # type: ignore[no-any-return]

    def load(self, position: bytes) -> bytes | None:
        if self._transaction is None:
            return self.values.get(position)  # type: ignore[no-any-return]
        return self._transaction.get(position, keyspace=self.values)  # type: ignore[no-any-return]

    def scan(self, keyspace: Keyspace, **bounds: Any) -> Iterator[tuple[bytes, bytes]]:
        if self._transaction is None:
            return keyspace.iterator(**bounds)  # type: ignore[return-value]
        return self._transaction.items(keyspace=keyspace, **bounds)

    # Changes -----------------------------------------------------------------------------------------------

    def change(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work(writer, ...)` alone, and write what it put into the writer as one batch.

        After a failure the totals are read again, from the last change that was written.
        """
        with self._lock:
            if self._busy:
                raise Error("a finalizer or signal handler changes the cache inside another change")
            self._busy = True
            try:
                if not self._known:
                    self._read_totals()
                self._known = False
                if self._transaction is not None:
                    result = work(self._transaction, *arguments)
                else:
                    batch = WriteBatch(self.db)
                    result = work(batch, *arguments)
                    batch.write()
                self._known = True
                return result
            except BaseException:
                if self._transaction is not None:
                    # Half a change: the rest of the block must not be written either.
                    self._transaction.rollback()
                raise
            finally:
                self._busy = False

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Hold the lock, and write the changes of the block as one batch, or none of them if it raises."""
        with self._lock:
            if self._transaction is not None:
                yield
                return
            try:
                with self.db.transaction() as self._transaction:
                    self._owner = threading.get_ident()
                    yield
            except BaseException:
                self._known = False
                raise
            finally:
                self._transaction = None

    def _read_totals(self) -> None:
        self.live = self.count = self._tail = self._head = 0
        for position, record in islice(self.scan(self.queue, reverse=True), 1):
            self._tail = NUMBER.unpack(position)[0]
            self.live, self.count = TOTALS.unpack_from(record)
            first = next(iter(self.scan(self.queue)))[0]
            self._head = NUMBER.unpack(first)[0] - 1
        self._cut = self._head
        self._ahead.clear()
        self._next_expiry = 0  # the next sweep finds it

    def append(
        self, writer: Writer, raw: bytes, payload: bytes, expiry: int, kind: int, tag: bytes, old: bytes | None
    ) -> bool:
        """Put an entry at the end of the log. `old` is the one it replaces. Return whether it fits into the cache."""
        size = entry_size(raw, payload)
        if self.evicts and size > self.limit:
            if old is not None:
                self.remove(writer, raw, old)
            return False
        if old is not None:
            self._release(writer, raw, old)
        self._make_room(writer, raw, size)
        self._put(writer, raw, payload, expiry, size, kind, tag)
        if expiry:
            writer.put(packed(expiry) + raw, b"", keyspace=self.expiries)
            self._next_expiry = min(self._next_expiry, expiry)
        if tag:
            writer.put(tag + raw, b"", keyspace=self.tags)
        return True

    def _put(
        self, writer: Writer, raw: bytes, payload: bytes, expiry: int, size: int, kind: int, tag: bytes
    ) -> None:
        self._tail += size
        self.live += size
        self.count += 1
        position = packed(self._tail)
        writer.put(position, payload, keyspace=self.values)
        writer.put(raw, ENTRY.pack(self._tail, expiry, size, kind) + tag, keyspace=self.index)
        writer.put(position, TOTALS.pack(self.live, self.count) + raw, keyspace=self.queue)

    def remove(self, writer: Writer, raw: bytes, entry: bytes) -> None:
        """Remove an entry."""
        self._remove(writer, raw, entry)
        self.mark(writer)

    def _remove(self, writer: Writer, raw: bytes, entry: bytes) -> None:
        writer.delete(raw, keyspace=self.index)
        self._release(writer, raw, entry)

    def _release(self, writer: Writer, raw: bytes, entry: bytes) -> None:
        """Take an entry out of everything but `index`."""
        _, expiry, size, _ = entry_fields(entry)
        self.live -= size
        self.count -= 1
        if expiry:
            writer.delete(packed(expiry) + raw, keyspace=self.expiries)
        if len(entry) > ENTRY.size:
            writer.delete(entry[ENTRY.size :] + raw, keyspace=self.tags)

    def mark(self, writer: Writer) -> None:
        """Record the totals."""
        self._tail += MARK_SIZE
        writer.put(packed(self._tail), TOTALS.pack(self.live, self.count), keyspace=self.queue)

    def touch(self, writer: Writer, raw: bytes, entry: bytes, expiry: int) -> None:
        """Give an entry another expiry."""
        before = entry[8:16]
        after = packed(expiry)
        writer.put(raw, entry[:8] + after + entry[16:], keyspace=self.index)
        if before != packed(0):
            writer.delete(before + raw, keyspace=self.expiries)
        if expiry:
            writer.put(after + raw, b"", keyspace=self.expiries)
            self._next_expiry = min(self._next_expiry, expiry)

    # Eviction ----------------------------------------------------------------------------------------------

    def _make_room(self, writer: Writer, raw: bytes, size: int) -> None:
        """Evict until `size` more bytes fit, and keep the log short. `raw` is the key that takes the room."""
        gone = {raw}
        if self._next_expiry != inf and self._next_expiry <= self.now():
            self.sweep(writer, gone, SWEEP)
        if self.evicts and self.live + size > self.limit:
            self._evict(writer, gone, size)
        if self._tail - self._head > self._longest():
            self._clean(writer, gone, size)
        if self._head - self._cut >= self._cut_step:
            self._cut_off(writer)

    def _longest(self) -> int:
        return self.live + max(self.live, self.limit if self.evicts else 4 * self._cut_step) // 4

    def _evict(self, writer: Writer, gone: set[bytes], size: int) -> None:
        spare = COPIES * size
        while self.live + size > self.limit:
            raw, entry = self._oldest(gone)
            if raw is None or entry is None:
                return
            if spare > 0 and self.recency is not None and self.recency.forget(raw):
                spare -= self._move(writer, raw, entry)
            else:
                self._remove(writer, raw, entry)
                self.evicted += 1
            gone.add(raw)

    def _clean(self, writer: Writer, gone: set[bytes], size: int) -> None:
        """Move live entries from the head to the end of the log, which leaves the garbage between them behind."""
        spare = COPIES * size
        while spare > 0 and self._tail - self._head > self._longest():
            raw, entry = self._oldest(gone)
            if raw is None or entry is None:
                return
            spare -= self._move(writer, raw, entry)
            gone.add(raw)

    def _move(self, writer: Writer, raw: bytes, entry: bytes) -> int:
        _, expiry, size, kind = entry_fields(entry)
        payload = self.load(entry[:8])
        if payload is None:
            raise Error(f"the cache has no value for {raw!r}: its files are damaged")
        self.live -= size
        self.count -= 1
        self._put(writer, raw, payload, expiry, size, kind, entry[ENTRY.size :])
        return size

    def _oldest(self, gone: set[bytes]) -> tuple[bytes | None, bytes | None]:
        """Advance the head past the next entry of the log that is not garbage or `gone`, and return it."""
        while True:
            if not self._ahead and not self._read_ahead():
                return None, None
            self._head, raw = self._ahead.popleft()
            if raw and raw not in gone:
                entry = self.find(raw)
                if entry is not None and entry_fields(entry)[0] == self._head:
                    return raw, entry

    def _read_ahead(self) -> bool:
        records = self.scan(self.queue, start=packed(self._head + 1))
        for position, record in islice(records, AHEAD):
            self._ahead.append((NUMBER.unpack(position)[0], record[TOTALS.size :]))
        return bool(self._ahead)

    def _cut_off(self, writer: Writer) -> None:
        start, stop = packed(self._cut), packed(self._head + 1)
        writer.delete_range(start, stop, keyspace=self.values)
        writer.delete_range(start, stop, keyspace=self.queue)
        self._cut = self._head

    # Expiry, tags, all -------------------------------------------------------------------------------------

    def sweep(self, writer: Writer, gone: set[bytes], most: int) -> int:
        """Remove up to `most` expired entries; return how many."""
        now = self.now()
        removed = 0
        following: float = inf
        for key, _ in self.scan(self.expiries, start=packed(int(self._next_expiry))):
            (expiry,) = NUMBER.unpack_from(key)
            if expiry > now or removed == most:
                following = expiry
                break
            raw = key[8:]
            entry = None if raw in gone else self.find(raw)
            if entry is not None:
                self._remove(writer, raw, entry)
                removed += 1
            gone.add(raw)
        self._next_expiry = following
        self.expired += removed
        return removed

    def remove_expired(self, writer: Writer) -> int:
        """Remove a batch of expired entries; return how many."""
        if self._next_expiry > self.now():
            return 0
        removed = self.sweep(writer, set(), REMOVALS)
        self.mark(writer)
        return removed

    def remove_tagged(self, writer: Writer, tag: bytes) -> int:
        """Remove a batch of entries with a tag; return how many."""
        tagged = [key[len(tag) :] for key, _ in islice(self.scan(self.tags, prefix=tag), REMOVALS)]
        for raw in tagged:
            entry = self.find(raw)
            if entry is not None:
                self._remove(writer, raw, entry)
        if tagged:
            self.mark(writer)
        return len(tagged)

    def clear(self, writer: Writer) -> int:
        """Remove all entries, by range."""
        removed = self.count
        for keyspace in (self.index, self.values, self.queue, self.expiries, self.tags):
            writer.delete_range(b"", END, keyspace=keyspace)
        self.live = self.count = 0
        self._head = self._cut = self._tail
        self._ahead.clear()
        self._next_expiry = inf
        self.mark(writer)
        return removed
