"""Transaction: optimistic and serializable. It reads one moment; its writes are committed together or not at all."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar

from lsmkv.errors import ConflictError
from lsmkv.mapping import Key, optional_bytes
from lsmkv.snapshot import Snapshot, place
from lsmkv_ext.port.compare import prefix_end
from lsmkv_ext.reader import Reader
from lsmkv_ext.transaction import ReadRange, TransactionBase

T = TypeVar("T")

Item = tuple[bytes, bytes]

# The longest wait before the second, third, ... run of a transaction, in seconds.
FIRST_WAIT = 0.0001
LONGEST_WAIT = 0.05


class Transaction(TransactionBase):
    """Reads of one moment, and writes that are committed together. `db.transaction()` returns it.

    As a context manager it commits at the end of the block, and rolls back if the block raises. The commit raises
    `ConflictError` if a key or range that it read was written by others meanwhile: the outcome is then as if
    transactions ran one after the other. A transaction that only read never conflicts.

    One thread at a time. Long ones cost memory: what is written meanwhile is kept for the check, up to 64 MiB in each
    keyspace; beyond that the commit raises `ConflictError`.

    >>> db.put(b"ada", b"10"); db.put(b"bob", b"0")
    >>> with db.transaction() as tx:
    ...     tx.put(b"bob", tx[b"ada"])
    ...     tx.delete(b"ada")
    >>> dict(db)
    {b'bob': b'10'}
    """

    def __repr__(self) -> str:
        if self.closed:
            return f"<lsmkv.Transaction at {self.sequence} (ended)>"
        return f"<lsmkv.Transaction of {place(self._source)} at {self.sequence}>"

    def items(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        keyspace: Reader | None = None,
    ) -> Iterator[Item]:
        """Iterate over the items with keys in [start, stop), or over those with a prefix, in key order.

        It sees the transaction's own writes as of this call. Only the keys that it has passed count as read.

        >>> with db.transaction() as tx:
        ...     tx.put(b"ada", b"1815")
        ...     list(tx.items())
        [(b'ada', b'1815')]
        """
        low, high = _bounds(optional_bytes(start), optional_bytes(stop), optional_bytes(prefix))
        mine, deleted = self._own_writes(keyspace)
        mine = [item for item in mine if item[0] >= low and (high is None or item[0] < high)]
        span: ReadRange = self._read_range(keyspace)
        source = self._source if keyspace is None else keyspace
        base = Snapshot(source, self).iterator(start=low, stop=high, reverse=reverse)
        passed = _passed(base, span, low, high, reverse)
        visible = (item for item in passed if not any(first <= item[0] < last for first, last in deleted))
        return _overlaid(visible, mine[::-1] if reverse else mine, reverse)

    def open_value(self, key: Any) -> BinaryIO:
        """Return the value of `key` as a binary file object. It is read at once, so that it counts as read.

        Raises `KeyError` if the key is missing.

        >>> db.put(b"ada", b"1815")
        >>> with db.transaction() as tx:
        ...     tx.open_value(b"ada").read()
        b'1815'
        """
        return io.BytesIO(self[key])

    def iterator(self, **options: Any) -> Iterator[Item]:  # type: ignore[override]
        """Iterate over the items. Parameters are those of `items`, as keywords.

        >>> with db.transaction() as tx:
        ...     list(tx.iterator(prefix=b"a"))
        []
        """
        return self.items(**options)

    def keys(self, *bounds: Key | None, **options: Any) -> Iterator[bytes]:
        """Iterate over the keys. Parameters are those of `items`.

        >>> with db.transaction() as tx:
        ...     list(tx.keys())
        []
        """
        return (key for key, _ in self.items(*bounds, **options))

    def values(self, *bounds: Key | None, **options: Any) -> Iterator[bytes]:
        """Iterate over the values, in the order of their keys. Parameters are those of `items`.

        >>> with db.transaction() as tx:
        ...     list(tx.values())
        []
        """
        return (value for _, value in self.items(*bounds, **options))

    def __iter__(self) -> Iterator[bytes]:
        return self.keys()


def pop_first(begin: Callable[[], Transaction], prefix: bytes) -> Item:
    """Delete the first key with the prefix and return it with its value. Raises `KeyError` if there is none.

    In a transaction, because nobody may put a smaller key between the read and the delete.
    """
    while True:
        with suppress(ConflictError), begin() as transaction:
            item = next(transaction.items(prefix=prefix), None)
            if item is None:
                raise KeyError("there is no key")
            transaction.delete(item[0])
            return item


def _bounds(start: bytes | None, stop: bytes | None, prefix: bytes | None) -> tuple[bytes, bytes | None]:
    low, high = start or b"", stop
    if prefix is not None:
        end = prefix_end(prefix)
        low = max(low, prefix)
        high = end if high is None else high if end is None else min(high, end)
    return low, high


def _passed(base: Iterator[Item], span: ReadRange, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Item]:
    """The items of `base`; `span` covers what has been passed."""
    for key, value in base:
        if reverse:
            span.widen(key, high, False)
        else:
            span.widen(low, key, True)
        yield key, value
    span.widen(low, high, False)


def _overlaid(base: Iterator[Item], mine: list[tuple[bytes, bytes | None]], reverse: bool) -> Iterator[Item]:
    """Merges the transaction's own writes over the items of the snapshot."""
    at = 0
    for key, value in base:
        while at < len(mine) and (mine[at][0] > key if reverse else mine[at][0] < key):
            yield from _present(mine[at])
            at += 1
        if at < len(mine) and mine[at][0] == key:
            yield from _present(mine[at])
            at += 1
        else:
            yield key, value
    for item in mine[at:]:
        yield from _present(item)


def _present(item: tuple[bytes, bytes | None]) -> Iterator[Item]:
    if item[1] is not None:
        yield item[0], item[1]


def transact(begin: Callable[[], Transaction], function: Callable[[Transaction], T], retries: int) -> T:
    """Runs `function` in a transaction, again after a conflict."""
    wait = FIRST_WAIT
    for _ in range(retries):
        try:
            with begin() as tx:
                return function(tx)
        except ConflictError:
            # At random, or two transactions that met would meet again.
            time.sleep(random.random() * wait)
            wait = min(wait * 2, LONGEST_WAIT)
    with begin() as tx:
        return function(tx)
