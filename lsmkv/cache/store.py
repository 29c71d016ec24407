"""The changes of a cache, and the order in which entries leave it.

The values are a log in segments: `lsmkv_ext/entry_log.pxd` has the records. Eviction goes through the keyspace `queue`
from the head of the log and looks each key up in `index`. If it has another position there, or none, the record is
garbage. This reads no values, and the head is remembered, so eviction never walks over what it removed. With "lru" an
entry that was read since moves to the end of the log instead. Entries also move if there is much garbage between them.
A segment behind the head is deleted as a range and used again.

Every change is one batch and has the totals after it, so they are right after a crash, and an open reads one record.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from lsmkv.errors import CorruptionError, Error
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.entry_log import NEVER, EntryLog, decode_entry, decode_number, decode_record, encode_number
from lsmkv_ext.port.finalization import require_running
from lsmkv_ext.port.section import in_section
from lsmkv_ext.store import Store

if TYPE_CHECKING:
    from lsmkv.db import DB
    from lsmkv.keyspace import Keyspace
    from lsmkv.transaction import Transaction

    Writer = WriteBatch | Transaction

T = TypeVar("T")

END = b"\xff"  # after all keys, positions, expiries and tags
SEGMENTS = 28  # the log fills up to 23
SEGMENTS_IN_USE = b"segments"  # a key of the default keyspace
READ_AHEAD = 256  # records of the queue
COPIES = 12  # a change moves at most 12 times its own size, and one entry more
SWEEP = 64  # expired entries that one change removes
REMOVALS = 1000  # entries that one batch removes


def read_slots(limit: int) -> bytearray:
    """Return memory for which keys were read, enough for entries of 256 bytes, up to 16 MiB."""
    return bytearray(1 << min(max(limit // 256, 1 << 12), 1 << 24).bit_length() - 1)


class EntryStore(EntryLog):
    """The entries of a cache, by encoded key."""

    def __init__(self, db: DB, limit: int, eviction: str) -> None:
        # Lookups by position are hits, and find their table by its key range.
        self.db = db
        segments: list[Store] = [self._keyspace_of(number) for number in range(SEGMENTS)]
        others = [db.keyspace(name, bits_per_key=0) for name in ("queue", "expiries", "tags")]
        super().__init__(db.keyspace("index"), segments, *others)
        self.limit = limit if eviction != "none" else NEVER
        self._limit = limit
        self.slots = read_slots(limit) if eviction == "lru" else None
        self.sweep_limit = SWEEP
        self.evicted = self.expired = 0
        self._smallest_segment = db.options.write_buffer_size // 8
        self._lock = threading.RLock()
        self._changing = False
        self._owner = 0  # the thread of the transaction
        self._known = False  # whether the totals and the fields below are those of the last change
        self._head = 0  # the position up to which eviction has come
        self._end = 0  # the tail before this change
        self._used: list[tuple[int, int]] = []  # (the position before its first record, number) of each segment in use
        self._drop_due = False  # whether free segments may have tables since a new segment began
        self._ahead: deque[tuple[int, bytes]] = deque()  # records of the queue behind the head
        self.change(lambda writer: None)

    @property
    def log_bytes(self) -> int:
        return self.tail - self._head

    def read_inside(self, raw: bytes) -> tuple[bytes, bytes] | None:
        """`read`, which in the thread of the transaction sees its writes."""
        if self.transaction is None or self._owner != threading.get_ident():
            return self.read(raw)
        entry = self.find(raw)
        payload = None if entry is None or self.is_expired(entry) else self.load(entry)
        return None if entry is None or payload is None else (entry, payload)

    def scan(self, keyspace: Any, **bounds: Any) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the items of a keyspace, as the holder of the lock sees them."""
        if self.transaction is None:
            return keyspace.iterator(**bounds)  # type: ignore[no-any-return]
        return self.transaction.items(keyspace=keyspace, **bounds)  # type: ignore[no-any-return]

    # Changes -----------------------------------------------------------------------------------------------

    def change(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work(writer, ...)` alone, and write what it puts into the writer as one batch.

        After a failure the totals are read again, from the last change that was written.
        """
        require_running()  # while the interpreter finalizes, the holder of the lock may have stopped for good
        with self._lock:  # and not acquire: an interrupt after it would leave the lock taken
            if self._changing:
                raise Error("a finalizer or signal handler changes the cache in the middle of another change")
            self._changing = True
            try:
                return self._change(work, arguments)
            finally:
                self._changing = False

    def _change(self, work: Callable[..., T], arguments: Any) -> T:
        if not self._known:
            self._read_totals()
        if self._drop_due and self.transaction is None:
            self._drop_tables()
        self._known = False
        if self.transaction is None:
            batch = WriteBatch(self.db)
            result = work(batch, *arguments)
            self.db.write(batch)
        else:
            result = self._change_in_transaction(work, arguments)
        self._known = True
        return result

    def _change_in_transaction(self, work: Callable[..., T], arguments: Any) -> T:
        try:
            return work(self.transaction, *arguments)
        except BaseException:
            # Half a change must not be written, even if the block goes on.
            self.transaction.rollback()
            raise

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Hold the lock, and write the changes of the block as one batch, or none if the block raises."""
        require_running()
        with self._lock:
            if self.transaction is None:
                yield from self._transact()
            else:
                yield

    def _transact(self) -> Iterator[None]:
        if self._drop_due:
            self._drop_tables()
        try:
            with self.db.transaction() as self.transaction:
                self._owner = threading.get_ident()
                yield
        except BaseException:
            self._known = False
            raise
        finally:
            self.transaction = None

    def settle(self) -> None:
        """Read the totals again if a change has failed."""
        if not self._known and not self._changing:
            self.change(lambda writer: None)

    def _read_totals(self) -> None:
        self.live = self.count = self.tail = self._head = 0
        for position, record in islice(self.scan(self.queue, reverse=True), 1):
            self.tail = decode_number(position)
            self.live, self.count, _ = decode_record(record)
        reader = self.db if self.transaction is None else self.transaction
        stored = reader.get(SEGMENTS_IN_USE, encode_number(0) + b"\0")
        self._used = [(decode_number(stored[at:]), stored[at + 8]) for at in range(0, len(stored), 9)]
        self._head = self._used[0][0]
        self.segment = self._used[-1][1]
        self.check_at = 0
        self._ahead.clear()
        self.next_expiry = 0

    # Eviction ----------------------------------------------------------------------------------------------

    def make_room(self, writer: Writer, raw: bytes, size: int) -> None:
        """Let `size` more bytes fit in, and keep the log short. `raw` is the key that takes the room."""
        gone = {raw}
        self._end = self.tail
        if self.next_expiry <= self.now():
            self._sweep(writer, gone, self.sweep_limit)
        self._evict(writer, gone, size)
        self._clean(writer, gone, size)
        self._free_segments(writer)
        if self._segment_is_full():
            self._next_segment(writer)
        self.check_at = self.tail if self._has_garbage() else self.tail + self._smallest_segment // 8

    def _has_garbage(self) -> bool:
        """Whether so much of the log is garbage that entries have to move."""
        garbage = self.tail - self._head - self.live
        return garbage > max(self._limit, self.live) // 10 or (len(self._used) == SEGMENTS and self._segment_is_full())

    def _segment_is_full(self) -> bool:
        size = max(self._limit // 20, self.live // 20, self._smallest_segment)
        return self.tail - self._used[-1][0] >= size

    def _evict(self, writer: Writer, gone: set[bytes], size: int) -> None:
        spare = COPIES * size
        while self.live + size > self.limit and (oldest := self._oldest(gone)):
            raw, entry = oldest
            if spare > 0 and self.forget_read(raw):
                spare -= self._move(writer, raw, entry)
            else:
                self.remove(writer, raw, entry)
                self.evicted += 1
            gone.add(raw)

    def _clean(self, writer: Writer, gone: set[bytes], size: int) -> None:
        """Move entries from the head to the end of the log, and leave the garbage between them behind.

        Garbage is about a tenth of the limit, so a cycle through the log moves at most ten times that.
        """
        spare = COPIES * size
        while spare > 0 and self._has_garbage() and (oldest := self._oldest(gone)):
            raw, entry = oldest
            spare -= self._move(writer, raw, entry)
            gone.add(raw)

    def _move(self, writer: Writer, raw: bytes, entry: bytes) -> int:
        _, expiry, size, kind, _, tag = decode_entry(entry)
        payload = self.load(entry)
        if payload is None:
            raise CorruptionError(f"the cache has no value for {raw!r}", self.db.path)
        self.release(writer, raw, entry)
        self.append(writer, raw, payload, expiry, kind, tag)
        return size

    def _oldest(self, gone: set[bytes]) -> tuple[bytes, bytes] | None:
        """Advance the head past the next entry in the log that is neither garbage nor `gone` with this change."""
        while self._ahead or self._read_ahead():
            self._head, raw = self._ahead.popleft()
            if raw and raw not in gone:
                entry = self.find(raw)
                if entry is not None and decode_number(entry) == self._head:
                    return raw, entry
        return None

    def _read_ahead(self) -> bool:
        # A transaction also sees the records of this change. The head must not pass them: they are live.
        start, stop = encode_number(self._head + 1), encode_number(self._end + 1)
        for position, record in islice(self.scan(self.queue, start=start, stop=stop), READ_AHEAD):
            self._ahead.append((decode_number(position), decode_record(record)[2]))
        return bool(self._ahead)

    # Segments ----------------------------------------------------------------------------------------------

    def _keyspace_of(self, segment: int) -> Keyspace:
        return self.db.keyspace(f"segment-{segment}", bits_per_key=0)

    def _free_segments(self, writer: Writer) -> None:
        """Delete the segments that the head has passed."""
        while len(self._used) > 1 and self._head >= self._used[1][0]:
            (_, number), (stop, _), *_ = self._used
            for keyspace in (self.segments[number], self.queue):
                # From 0: a table is dropped unread only if its own older range tombstones are covered too.
                writer.delete_range(encode_number(0), encode_number(stop + 1), keyspace=keyspace)
            del self._used[0]
            self._store_segments(writer)

    def _next_segment(self, writer: Writer) -> None:
        """Append to a free segment from now on. Without one this segment grows."""
        self._drop_due = True
        if free := self._free_numbers():
            # The one that was free for longest: in the others the background still drops tables.
            self.segment = min(free, key=lambda number: (number - self.segment) % SEGMENTS)
            self._used.append((self.tail, self.segment))
            self._store_segments(writer)

    def _free_numbers(self) -> set[int]:
        return set(range(SEGMENTS)).difference(number for _, number in self._used)

    def _drop_tables(self) -> None:
        """Wait until the tables of free segments are dropped, if they take much space: writers may be ahead of the
        background by several write buffers.
        """
        if in_section():
            return  # a finalizer must not wait
        self._drop_due = False
        most = max(self._limit // 10, self.db.options.write_buffer_size)
        sizes = {keyspace: keyspace.approximate_size() for keyspace in map(self._keyspace_of, self._free_numbers())}
        if sum(sizes.values()) > most:
            for keyspace in filter(sizes.get, sizes):
                keyspace.compact_range()

    def _store_segments(self, writer: Writer) -> None:
        stored = b"".join(encode_number(start) + bytes((number,)) for start, number in self._used)
        writer.put(SEGMENTS_IN_USE, stored, keyspace=self.db)

    # Removing ----------------------------------------------------------------------------------------------

    def _sweep(self, writer: Writer, gone: set[bytes], most: int) -> int:
        """Remove up to `most` expired entries; return how many."""
        now = self.now()
        removed = 0
        following = NEVER
        for key, _ in self.scan(self.expiries, start=encode_number(self.next_expiry)):
            expiry = decode_number(key)
            if expiry > now or removed == most:
                following = expiry
                break
            raw = key[8:]
            entry = None if raw in gone else self.find(raw)
            if entry is not None:
                self.remove(writer, raw, entry)
                removed += 1
            gone.add(raw)
        self.next_expiry = following
        self.expired += removed
        return removed

    def remove_expired(self, writer: Writer) -> int:
        """Remove a batch of expired entries; return how many."""
        removed = self._sweep(writer, set(), REMOVALS) if self.next_expiry <= self.now() else 0
        if removed:
            self.mark(writer)
        return removed

    def remove_tagged(self, writer: Writer, tag: bytes) -> int:
        """Remove a batch of entries with a tag; return how many."""
        removed = 0
        for raw in [key[len(tag) :] for key, _ in islice(self.scan(self.tags, prefix=tag), REMOVALS)]:
            entry = self.find(raw)
            if entry is not None and decode_entry(entry)[5] == tag:
                self.remove(writer, raw, entry)
                removed += 1
        if removed:
            self.mark(writer)
        return removed

    def remove_all(self, writer: Writer) -> int:
        """Remove all entries, by range; return how many there were."""
        removed = self.count
        for keyspace in (self.index, *self.segments, self.queue, self.expiries, self.tags):
            writer.delete_range(b"", END, keyspace=keyspace)
        self.live = self.count = 0
        self._head = self.tail
        self._used = [(self.tail, self.segment)]
        self._store_segments(writer)
        self._ahead.clear()
        self.next_expiry = NEVER
        self.mark(writer)
        return removed
