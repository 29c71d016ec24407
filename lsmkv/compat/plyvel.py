"""plyvel's interface: `import lsmkv.compat.plyvel as plyvel` runs programs written for plyvel 1.5.

Databases are lsmkv's, not LevelDB's. What lsmkv has beyond plyvel is at `DB.lsmkv`. Comparators are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

import lsmkv
from lsmkv.errors import CorruptionError, Error, IOError, IteratorInvalidError
from lsmkv.mapping import Key
from lsmkv.prefixed import PrefixedBatch
from lsmkv.recovery.stored_state import exists
from lsmkv_ext.port.bytes_like import as_bytes

__all__ = [
    "DB",
    "CorruptionError",
    "Error",
    "IOError",
    "IteratorInvalidError",
    "PrefixedDB",
    "RawIterator",
    "ReverseIterator",
    "Snapshot",
    "WriteBatch",
    "destroy_db",
    "repair_db",
]

__version__ = "1.5.1"  # the plyvel whose interface this is
__leveldb_version__ = "1.23"  # and the LevelDB that it came with

Pair = tuple[bytes, bytes]

# plyvel's names that are lsmkv's under another name. The rest means the same in both.
_RENAMED = {"lru_cache_size": "block_cache_size", "max_file_size": "target_file_size"}
_SIZES = ("write_buffer_size", "max_open_files", "lru_cache_size", "block_size", "max_file_size")


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """lsmkv's options from plyvel's. Checksums are always verified, and blocks have no restart points."""
    found: dict[str, Any] = {}
    for name in _SIZES:
        value = given[name]
        if value is None:
            continue
        if not isinstance(value, int):
            raise TypeError(f"{name} is an int, not {type(value).__name__}")
        found[_RENAMED.get(name, name)] = value
    if given["bloom_filter_bits"]:
        found["bits_per_key"] = given["bloom_filter_bits"]
    if given["compression"] not in ("snappy", None):
        raise ValueError(f"compression is 'snappy' (LZ4 here) or None, not {given['compression']!r}")
    found["compression"] = "lz4" if given["compression"] else None
    _refuse_comparator(given["comparator"], given["comparator_name"])
    return found


def _refuse_comparator(comparator: Callable[[bytes, bytes], int] | None, name: bytes | None) -> None:
    if comparator is None and name is None:
        return
    if comparator is None or name is None:
        raise ValueError("comparator and comparator_name go together")
    if not callable(comparator) or not isinstance(name, bytes):
        raise TypeError("a comparator is callable, and its name is bytes")
    raise ValueError("lsmkv orders keys by their bytes: it has no comparators")


class Steps(Protocol):
    """An iterator of lsmkv."""

    def next(self) -> Any: ...
    def prev(self) -> Any: ...
    def seek(self, target: Key) -> None: ...
    def seek_to_start(self) -> None: ...
    def seek_to_stop(self) -> None: ...
    def close(self) -> None: ...


class ReverseIterator:
    """A reverse iterator with plyvel's positions: `seek_to_start` is at the smallest key, where it ends.

    >>> from lsmkv.compat import plyvel
    >>> db = plyvel.DB("people.db", create_if_missing=True)
    >>> db.put(b"ada", b"1815")
    >>> it = db.iterator(reverse=True, include_value=False)
    >>> next(it)
    b'ada'
    >>> it.seek_to_start()
    >>> next(it, "end")
    'end'
    """

    def __init__(self, forward: Steps) -> None:
        self._forward = forward
        forward.seek_to_stop()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._forward.prev()

    def next(self) -> Any:
        """Step toward the smallest key, and return the item that was passed."""
        return self._forward.prev()

    def prev(self) -> Any:
        """Step toward the largest key, and return the item that was passed."""
        return self._forward.next()

    def seek(self, target: Key) -> None:
        """Move before the first key >= `target`: `next` returns the key below."""
        self._forward.seek(target)

    def seek_to_start(self) -> None:
        """Move before the smallest key."""
        self._forward.seek_to_start()

    def seek_to_stop(self) -> None:
        """Move after the largest key."""
        self._forward.seek_to_stop()

    def close(self) -> None:
        """Release the files of the iterator."""
        self._forward.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class RawIterator:
    """LevelDB's iterator: on a key, or on none.

    >>> from lsmkv.compat import plyvel
    >>> db = plyvel.DB("people.db", create_if_missing=True)
    >>> db.put(b"ada", b"1815")
    >>> it = db.raw_iterator()
    >>> it.seek(b"a")
    >>> it.valid(), it.item()
    (True, (b'ada', b'1815'))
    """

    def __init__(self, cursor: lsmkv.Cursor) -> None:
        self._cursor = cursor

    def valid(self) -> bool:
        """Whether the iterator is on a key."""
        return self._cursor.valid

    def seek_to_first(self) -> None:
        """Move to the smallest key."""
        self._cursor.seek_to_first()

    def seek_to_last(self) -> None:
        """Move to the largest key."""
        self._cursor.seek_to_last()

    def seek(self, target: Key) -> None:
        """Move to the first key >= `target`."""
        self._cursor.seek(target)

    def next(self) -> None:
        """Move to the next key. Raises `IteratorInvalidError` on none."""
        self._cursor.next()

    def prev(self) -> None:
        """Move to the previous key. Raises `IteratorInvalidError` on none."""
        self._cursor.prev()

    def key(self) -> bytes:
        """Return the key. Raises `IteratorInvalidError` on none."""
        return self._cursor.key()

    def value(self) -> bytes:
        """Return the value. Raises `IteratorInvalidError` on none."""
        return self._cursor.value()

    def item(self) -> Pair:
        """Return (key, value). Raises `IteratorInvalidError` on none."""
        return self._cursor.item()

    def close(self) -> None:
        """Release the files of the iterator."""
        self._cursor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class WriteBatch(lsmkv.WriteBatch):
    """lsmkv's batch with plyvel's name for its size.

    >>> from lsmkv.compat import plyvel
    >>> db = plyvel.DB("people.db", create_if_missing=True)
    >>> with db.write_batch() as batch:
    ...     batch.put(b"ada", b"1815")
    """

    def approximate_size(self) -> int:
        """Return the size of the changes in bytes."""
        return self.size_bytes


class _PrefixedBatch(PrefixedBatch):
    def approximate_size(self) -> int:
        return self.size_bytes


class _Reads:
    """The reads of a database, a snapshot or a part of one. `lsmkv` is what they read from."""

    lsmkv: Any

    def get(self, key: Key, default: Any = None, *, verify_checksums: bool = False, fill_cache: bool = True) -> Any:
        """Return the value of a key, or `default`."""
        return self.lsmkv.get(key, default, fill_cache=fill_cache)

    def iterator(self, *, reverse: bool = False, verify_checksums: bool = False, **span: Any) -> Any:
        """Return an iterator over pairs. The other arguments are those of `lsmkv.DB.iterator`."""
        if span.get("prefix") is not None and (span.get("start") is not None or span.get("stop") is not None):
            raise TypeError("'prefix' cannot be used together with 'start' or 'stop'")
        forward = self.lsmkv.iterator(**span)
        return ReverseIterator(forward) if reverse else forward

    def raw_iterator(self, *, verify_checksums: bool = False, fill_cache: bool = True) -> RawIterator:
        """Return an iterator with LevelDB's own calls."""
        return RawIterator(self.lsmkv.cursor(fill_cache=fill_cache))

    def __iter__(self) -> Iterator[Pair]:
        pairs: Iterator[Pair] = self.lsmkv.iterator()
        return pairs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.lsmkv.close()


class Snapshot(_Reads):
    """The state of a database at one moment.

    >>> from lsmkv.compat import plyvel
    >>> db = plyvel.DB("people.db", create_if_missing=True)
    >>> with db.snapshot() as snapshot:
    ...     list(snapshot)
    []
    """

    def __init__(self, snapshot: Any) -> None:
        self.lsmkv = snapshot

    def close(self) -> None:
        """Release the files of the snapshot."""
        self.lsmkv.close()

    release = close


class _Writes(_Reads):
    """The writes of a database, or of the part with a prefix."""

    def put(self, key: Key, value: Key, *, sync: bool = False) -> None:
        """Set the value of a key."""
        self.lsmkv.put(key, value, sync=sync)

    def delete(self, key: Key, *, sync: bool = False) -> None:
        """Delete a key."""
        self.lsmkv.delete(key, sync=sync)

    def snapshot(self) -> Snapshot:
        """Return the current state as a read-only view."""
        return Snapshot(self.lsmkv.snapshot())


class PrefixedDB(_Writes):
    """The part of a database whose keys begin with a prefix, under keys without it.

    >>> from lsmkv.compat import plyvel
    >>> db = plyvel.DB("people.db", create_if_missing=True)
    >>> db.prefixed_db(b"user:").put(b"ada", b"1815")
    >>> db.get(b"user:ada")
    b'1815'
    """

    def __init__(self, db: DB, prefix: Key) -> None:
        self.db = db
        self.prefix = as_bytes(prefix)
        self.lsmkv = db.lsmkv.prefixed_db(self.prefix)

    def write_batch(self, *, transaction: bool = False, sync: bool = False) -> _PrefixedBatch:
        """Return a batch that adds the prefix to its keys."""
        return _PrefixedBatch(self.db.write_batch(transaction=transaction, sync=sync), self.prefix)

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        """Return the part with a longer prefix."""
        return PrefixedDB(self.db, self.prefix + as_bytes(prefix))


class DB(_Writes):
    """A database with plyvel's calls. The options are plyvel's; `block_restart_interval` and `paranoid_checks` have
    no effect. A database that exists is opened, and `bloom_filter_bits=0` means lsmkv's default.

    >>> from lsmkv.compat import plyvel
    >>> with plyvel.DB("people.db", create_if_missing=True) as db:
    ...     db.put(b"ada", b"1815")
    ...     list(db)
    [(b'ada', b'1815')]
    """

    def __init__(
        self,
        name: str | bytes | os.PathLike[str],
        *,
        create_if_missing: bool = False,
        error_if_exists: bool = False,
        paranoid_checks: bool | None = None,
        write_buffer_size: int | None = None,
        max_open_files: int | None = None,
        lru_cache_size: int | None = None,
        block_size: int | None = None,
        block_restart_interval: int | None = None,
        max_file_size: int | None = None,
        compression: str | None = "snappy",
        bloom_filter_bits: int = 0,
        comparator: Callable[[bytes, bytes], int] | None = None,
        comparator_name: bytes | None = None,
    ) -> None:
        options = _options(locals())
        self._name = os.fsdecode(name)
        if error_if_exists and exists(self._name):
            raise Error(f"{self._name}: exists (error_if_exists is true)")
        self.lsmkv = lsmkv.open(self._name, "c" if create_if_missing else "w", **options)

    @property
    def name(self) -> str:
        """The directory of the database."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether the database is closed."""
        closed: bool = self.lsmkv.closed
        return closed

    def close(self) -> None:
        """Close the database. What is used afterwards raises `RuntimeError`."""
        self.lsmkv.close()

    def write_batch(self, *, transaction: bool = False, sync: bool = False) -> WriteBatch:
        """Return a batch. As a context manager it is written even if the block raises, unless `transaction`."""
        self.lsmkv._check_open()
        return WriteBatch(self.lsmkv, transaction=transaction, sync=sync)

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        """Return the part of the database whose keys begin with `prefix`."""
        return PrefixedDB(self, prefix)

    def compact_range(self, *, start: Key | None = None, stop: Key | None = None) -> None:
        """Compact the keys in [start, stop)."""
        self.lsmkv.compact_range(start, stop)

    def approximate_size(self, start: Key, stop: Key) -> int:
        """Return the bytes of the keys in [start, stop) in table files."""
        size: int = self.lsmkv.approximate_size(start, stop)
        return size

    def approximate_sizes(self, *ranges: tuple[Key, Key]) -> list[int]:
        """Return the bytes of several ranges."""
        return [self.approximate_size(start, stop) for start, stop in ranges]

    def get_property(self, name: bytes) -> bytes | None:
        """Return a property, b"leveldb.stats" for example, or None for an unknown name."""
        if not isinstance(name, bytes):
            raise TypeError(f"a property's name is bytes, not {type(name).__name__}")
        prefix, _, rest = name.decode(errors="replace").partition(".")
        found = self.lsmkv.property(f"lsmkv.{rest}") if prefix == "leveldb" else None
        return None if found is None else found.encode()


def repair_db(name: str | bytes | os.PathLike[str], **options: Any) -> None:
    """Rebuild a database from its readable files. The options of plyvel are taken and not needed.

    >>> from lsmkv.compat import plyvel
    >>> plyvel.DB("people.db", create_if_missing=True).close()
    >>> plyvel.repair_db("people.db")
    """
    lsmkv.repair(os.fsdecode(name))


def destroy_db(name: str | bytes | os.PathLike[str]) -> None:
    """Delete a database.

    >>> from lsmkv.compat import plyvel
    >>> plyvel.DB("people.db", create_if_missing=True).close()
    >>> plyvel.destroy_db("people.db")
    """
    lsmkv.destroy(os.fsdecode(name))
