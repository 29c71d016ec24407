"""The calls that take or return whole columns. The data plane's part is imported at their first use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lsmkv.mapping import Key
from lsmkv_ext.reader import Reader
from lsmkv_ext.store import Store

if TYPE_CHECKING:
    from lsmkv_ext.arrow.array import ArrowColumn
    from lsmkv_ext.columns.scan import ArrowScan

Type = Literal["binary", "large_binary", "string", "large_string"]


class ArrowArrays(Protocol):
    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


class ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Table = ArrowArrays | ArrowStream
# Columns, also of numpy; pairs of buffers (data, offsets); sequences.
Rows = ArrowArrays | ArrowStream | Iterable[Any]


class ColumnReads(Reader):
    """The calls that read columns."""

    __slots__ = ()

    def scan_arrow(
        self,
        *,
        start: Key | None = None,
        stop: Key | None = None,
        prefix: Key | None = None,
        reverse: bool = False,
        columns: Sequence[str] = ("key", "value"),
        batch_rows: int = 16384,
        key_type: Type = "binary",
        value_type: Type = "binary",
        fill_cache: bool = True,
    ) -> ArrowScan:
        """Return the keys in [start, stop) and their values as an `ArrowScan`, a table of Arrow batches.

        pyarrow, polars, pandas and duckdb read it directly. Rows come in key order, or with `reverse` from the end;
        `prefix` narrows the range to the keys with that prefix. `columns` selects and orders the columns. A batch has
        at most `batch_rows` rows, and ends with the row that brings it to 8 MiB.

        The types are "binary", "large_binary", "string" and "large_string". Text is checked: a row that is not UTF-8
        ends the stream with an error. `fill_cache=False` keeps a long scan out of the block cache.

        It sees the state at this call; later writes do not show. An error reaches the consumer as its own kind of
        exception, with the name and text of ours.

        >>> import pyarrow
        >>> db.put(b"ada", b"1815")
        >>> pyarrow.table(db.scan_arrow(prefix=b"a")).column("value").to_pylist()
        [b'1815']
        """
        from lsmkv_ext.columns.scan import scan_columns

        return scan_columns(
            self,
            start=start,
            stop=stop,
            prefix=prefix,
            reverse=reverse,
            columns=columns,
            batch_rows=batch_rows,
            key_type=key_type,
            value_type=value_type,
            fill_cache=fill_cache,
        )

    def multi_get_arrow(self, keys: Rows, *, value_type: Type = "binary") -> ArrowColumn:
        """Return the values of a column of keys as an `ArrowColumn`, null for keys that are missing.

        `keys` is an Arrow column of binary or text, a numpy array of dtype S or V or of uint8 and two dimensions, a
        pair of buffers (data, offsets), or a sequence of bytes. All keys are read from the same state.

        Raises `ValueError` with the row for a null key, or if the values exceed 2 GiB and the type is not a large one,
        and as `multi_get` does.

        >>> import pyarrow
        >>> db.put(b"ada", b"1815")
        >>> pyarrow.array(db.multi_get_arrow(pyarrow.array([b"ada", b"bob"]))).to_pylist()
        [b'1815', None]
        """
        from lsmkv_ext.columns.lookup import look_up_column

        return look_up_column(self, keys, value_type=value_type)


class ColumnWrites(ColumnReads, Store):
    """The calls that write columns."""

    __slots__ = ()

    def write_arrow(
        self,
        table: Table,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> int:
        """Put the rows of an Arrow table of two columns, keys and values, and return their number.

        `table` has `__arrow_c_stream__` or `__arrow_c_array__`, as those of pyarrow, polars, pandas and duckdb have;
        both columns are binary or text. Of equal keys the last one counts.

        The rows are written in batches of up to 8192 rows or about 512 KiB. Each batch is applied as `write` applies
        one: all of it or none, also after a crash. The table as a whole is not; the batches become visible in order.
        With `sync=True` it returns once all rows survive a power cut.

        Raises `ValueError` with the row if something is null, too long or inconsistent, and `TypeError` for another
        type; earlier batches stay written. `ttl`, `expire_at` and the other errors are those of `put`.

        >>> import pyarrow
        >>> db.write_arrow(pyarrow.table({"key": [b"ada", b"grace"], "value": [b"1815", b"1906"]}))
        2
        >>> db[b"grace"]
        b'1906'
        """
        from lsmkv_ext.columns.write import write_table

        return write_table(self, table, sync=sync, ttl=ttl, expire_at=expire_at)

    def put_many(
        self,
        keys: Rows,
        values: Rows,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> int:
        """Put many keys and their values, and return their number.

        `keys` and `values` are each a column as in `multi_get_arrow`, or a sequence of bytes. Trailing zero bytes of
        numpy's dtype S do not count. Batches, `sync` and errors are those of `write_arrow`; `ValueError` also if there
        are more keys than values or fewer.

        >>> db.put_many([b"ada", b"grace"], [b"1815", b"1906"])
        2
        >>> import numpy
        >>> db.put_many(numpy.array([b"ada", b"bob"]), numpy.zeros((2, 4), "uint8"))
        2
        """
        from lsmkv_ext.columns.write import write_columns

        return write_columns(self, keys, values, sync=sync, ttl=ttl, expire_at=expire_at)
