from dataclasses import dataclass
from typing import NamedTuple

from cpython.bytes cimport PyBytes_FromStringAndSize

from lsmkv_ext.port.growable cimport buf_free


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `start` to `stop`; None is open on that side. `exclusive` leaves `stop` itself out."""

    start: bytes | None
    stop: bytes | None
    exclusive: bool = False

    def overlaps(self, other):
        return not (self.before(other) or other.before(self))

    def before(self, other):
        """Returns whether every key of this range is below every key of `other`."""
        if self.stop is None or other.start is None:
            return False
        return self.stop < other.start or (self.exclusive and self.stop == other.start)

    def covers(self, other):
        """Returns whether every key of `other` is in this range."""
        if self.start is not None and (other.start is None or other.start < self.start):
            return False
        if self.stop is None:
            return True
        if other.stop is None or other.stop > self.stop:
            return False
        return other.stop < self.stop or other.exclusive or not self.exclusive

    def union(self, other):
        """Returns the smallest range that covers both."""
        start = None if self.start is None or other.start is None else min(self.start, other.start)
        if self.stop is None or other.stop is None:
            return KeyRange(start, None)
        last = max((self.stop, not self.exclusive), (other.stop, not other.exclusive))
        return KeyRange(start, last[0], not last[1])


class ValueLogUse(NamedTuple):
    """The values of one value log that a table points to."""

    number: int
    identity: int
    values: int
    bytes: int  # with header, chunk table and padding of each
    end: int  # the offset after the last of them and its chunk table


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMeta:
    """What is known about a table without opening it. The manifest stores exactly these fields."""

    number: int
    size: int
    entries: int
    smallest: bytes
    largest: bytes
    largest_exclusive: bool = False  # `largest` is the stop of a range tombstone, not a key
    deletes: int = 0
    range_tombstones: int = 0
    min_seq: int = 0
    max_seq: int = 0
    global_seq: int = 0  # not 0: every entry counts as having this sequence number (ingested tables)
    raw_bytes: int = 0  # keys and values
    data_bytes: int = 0
    index_bytes: int = 0
    filter_bytes: int = 0
    filter_keys: int = 0
    millibits: int = 0  # filter bits per key x 1000
    k: int = 0  # bits set per key; of a fuse filter the width of a fingerprint
    filter_kind: int = 1  # 1 Bloom or no filter, 2 fuse
    filter_level: int = 0  # the level the filter was built for
    expiring: int = 0  # entries with an expiry; 0: the next three are 0 too
    min_expiry: int = 0
    max_expiry: int = 0
    expiring_bytes: int = 0  # keys and values of these
    value_logs: tuple[ValueLogUse, ...] = ()  # that it points into, by number
    own_log: int = 0  # not 0: pointers with the number 0 mean this value log (ingested tables)

    def __post_init__(self):
        if self.smallest > self.largest:
            raise ValueError(f"file {self.number}: smallest key above the largest")

    def overlaps(self, other):
        return self.range.overlaps(other if isinstance(other, KeyRange) else other.range)

    def expired(self, now):
        """About how many entries are expired at `now`: exact at both ends, and in between as if their expiries were spread
        evenly. 0 is a time before all expiries."""
        if not self.expiring or now < self.min_expiry:
            return 0
        if now >= self.max_expiry:
            return self.expiring
        return int(self.expiring * (now - self.min_expiry) / (self.max_expiry - self.min_expiry))

    def expired_bytes(self, now):
        """About how many bytes these take."""
        return self.expiring_bytes * self.expired(now) // self.expiring if self.expiring else 0

    @property
    def range(self):
        return KeyRange(self.smallest, self.largest, self.largest_exclusive)

    @property
    def age(self):
        """Orders the tables of L0: larger is newer."""
        return (self.max_seq, self.number)


cdef object meta_object(const TableMetaC* m):
    return TableMeta(
        number=m.number,
        size=m.size,
        entries=m.entries,
        smallest=PyBytes_FromStringAndSize(m.smallest.data, m.smallest.len),
        largest=PyBytes_FromStringAndSize(m.largest.data, m.largest.len),
        largest_exclusive=bool(m.largest_exclusive),
        deletes=m.deletes,
        range_tombstones=m.range_tombstones,
        min_seq=m.min_seq,
        max_seq=m.max_seq,
        global_seq=m.global_seq,
        raw_bytes=m.raw_bytes,
        data_bytes=m.data_bytes,
        index_bytes=m.index_bytes,
        filter_bytes=m.filter_bytes,
        filter_keys=m.filter_keys,
        millibits=m.millibits,
        k=m.k,
        filter_kind=m.filter_kind,
        filter_level=m.filter_level,
        expiring=m.expiring,
        min_expiry=m.min_expiry,
        max_expiry=m.max_expiry,
        expiring_bytes=m.expiring_bytes,
        value_logs=uses_object(m),
        own_log=m.own_log,
    )


cdef tuple uses_object(const TableMetaC* m):
    cdef const ValueUse* use = <const ValueUse*>m.values.data
    cdef size_t i
    return tuple([
        ValueLogUse(use[i].number, use[i].identity, use[i].values, use[i].bytes, use[i].end)
        for i in range(m.values.len // sizeof(ValueUse))
    ])


cdef void meta_free(TableMetaC* m) noexcept nogil:
    buf_free(&m.values)
    buf_free(&m.smallest)
    buf_free(&m.largest)
