"""Reads a table file outside a database."""

import os

from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.errors import ClosedError
from lsmkv_ext.table.verify import value_problems, verify_table

from libc.stdint cimport uint64_t

from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.wall_clock cimport lsm_wall_ms
from lsmkv_ext.table.format cimport PROP_EXPIRING
from lsmkv_ext.table.table cimport Table
from lsmkv_ext.table.tombstones cimport tombstones_cover


cdef class SSTReader:
    """SSTReader(path, *, cache_size=8388608)\n--\n\n\
    Reads a table file outside a database, as a read-only mapping in key order.

    `cache_size` is the size of its block cache in bytes. Raises `CorruptionError` if the file is damaged, and `IOError`
    if it cannot be read.

    >>> with lsmkv.SSTWriter("people.sst") as table:
    ...     table.put(b"ada", b"1815")
    >>> with lsmkv.SSTReader("people.sst") as table:
    ...     table[b"ada"]
    b'1815'
    """

    cdef Table _table
    cdef object _path

    def __init__(self, path, *, cache_size=8 << 20):
        self._table = Table(path, 0, BlockCache(cache_size))
        self._path = self._table.path

    cdef Table _open_table(self):
        if self._table is None:
            raise ClosedError("this SSTReader is closed")
        return self._table

    @property
    def path(self):
        """The path of the file.

        >>> lsmkv.SSTWriter("people.sst").finish()["n_entries"]
        0
        >>> lsmkv.SSTReader("people.sst").path.endswith("people.sst")
        True
        """
        return self._path

    @property
    def closed(self):
        """Whether the reader is closed.

        >>> lsmkv.SSTWriter("people.sst").finish()["n_entries"]
        0
        >>> lsmkv.SSTReader("people.sst").closed
        False
        """
        return self._table is None

    @property
    def table(self):
        """The open table, with its blocks, filter, sequence numbers and tombstones.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815", seq=7)
        >>> list(lsmkv.SSTReader("people.sst").table.entries())
        [(b'ada', b'1815', 7)]
        """
        return self._open_table()

    def get(self, key, default=None):
        """Return the value of `key`, or `default` if it is missing, deleted or expired.

        Raises `CorruptionError` if a block is damaged, and `IOError` if the disk fails.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        >>> lsmkv.SSTReader("people.sst").get(b"ada")
        b'1815'
        """
        cdef Table t = self._open_table()
        cdef bytes k = as_bytes(key)
        if not t.may_contain(k):
            return default
        found = t.find(k)
        if found is None or found[0] is None or _hidden(t, k, found[1]) or _expired(found[2]):
            return default
        return found[0]

    def __getitem__(self, key):
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key):
        return self.get(key) is not None

    def items(self, start=None, stop=None, *, reverse=False):
        """Iterate over (key, value) in [start, stop), with `reverse` from the end. Raises as `get` does.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        >>> list(lsmkv.SSTReader("people.sst").items())
        [(b'ada', b'1815')]
        """
        cdef Table t = self._open_table()
        for key, value, seq, expiry in t.entries(start, stop, reverse=reverse, fill_cache=False, expiries=True):
            if value is not None and not _hidden(t, key, seq) and not _expired(expiry):
                yield key, value

    def keys(self, start=None, stop=None, *, reverse=False):
        """Iterate over the keys in [start, stop), with `reverse` from the end. Raises as `get` does.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        >>> list(lsmkv.SSTReader("people.sst").keys())
        [b'ada']
        """
        for key, _ in self.items(start, stop, reverse=reverse):
            yield key

    def values(self, start=None, stop=None, *, reverse=False):
        """Iterate over the values of the keys in [start, stop), with `reverse` from the end. Raises as `get` does.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        >>> list(lsmkv.SSTReader("people.sst").values())
        [b'1815']
        """
        for _, value in self.items(start, stop, reverse=reverse):
            yield value

    def __iter__(self):
        return self.keys()

    def __reversed__(self):
        return self.keys(reverse=True)

    def __len__(self):
        """Live entries, exactly; counted by a scan if the table has tombstones or expiries."""
        cdef Table t = self._open_table()
        if t.c.n_deletes == 0 and t.c.tombstones.n == 0 and t.c.props.numbers[PROP_EXPIRING] == 0:
            return t.c.n_entries
        return sum(1 for _ in self.keys())

    @property
    def properties(self):
        """The properties of the table, with the sizes of file, index and filter.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        >>> lsmkv.SSTReader("people.sst").properties["smallest"]
        b'ada'
        """
        return self._open_table().properties

    @property
    def filter_info(self):
        """The parameters of the filter. A damaged filter has `usable` False and the reason in `problem`.

        >>> with lsmkv.SSTWriter("people.sst", bits_per_key=12) as table:
        ...     table.put(b"ada", b"1815")
        >>> lsmkv.SSTReader("people.sst").filter_info["millibits"]
        12000
        """
        return self._open_table().filter_info

    def verify(self, deep=True):
        """Check every block, the filter and the values in the value log, with `deep` also every key. Returns the findings,
        [] if there are none.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        >>> lsmkv.SSTReader("people.sst").verify()
        []
        """
        cdef Table t = self._open_table()
        findings = verify_table(t, deep=deep)
        if not findings:
            findings = [{"offset": None, "what": f"{os.path.basename(path)}: {what}"} for path, what in value_problems(t)]
        return findings

    def close(self):
        """Close the file. Further calls raise `ClosedError`.

        >>> lsmkv.SSTWriter("people.sst").finish()["n_entries"]
        0
        >>> lsmkv.SSTReader("people.sst").close()
        """
        self._table = None

    def __enter__(self):
        self._open_table()
        return self

    def __exit__(self, exc_type, exc, tb):
        self.close()


cdef bint _expired(uint64_t expiry):
    """By the clock of the system: the file has no other."""
    return expiry != 0 and expiry <= lsm_wall_ms()


cdef bint _hidden(Table t, bytes key, uint64_t seq):
    """Returns whether a range tombstone of the same file, newer than the entry, covers it."""
    return tombstones_cover(&t.c.tombstones, key, <size_t>len(key)) > seq
