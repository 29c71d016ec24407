from dataclasses import dataclass
from typing import NamedTuple

@dataclass(frozen=True, slots=True)
class KeyRange:
    start: bytes | None
    stop: bytes | None
    exclusive: bool = False
    def overlaps(self, other: KeyRange) -> bool: ...
    def before(self, other: KeyRange) -> bool: ...
    def covers(self, other: KeyRange) -> bool: ...
    def union(self, other: KeyRange) -> KeyRange: ...

class ValueLogUse(NamedTuple):
    number: int
    identity: int
    values: int
    bytes: int
    end: int

@dataclass(frozen=True, slots=True, kw_only=True)
class TableMeta:
    number: int
    size: int
    entries: int
    smallest: bytes
    largest: bytes
    largest_exclusive: bool = False
    deletes: int = 0
    range_tombstones: int = 0
    min_seq: int = 0
    max_seq: int = 0
    global_seq: int = 0
    raw_bytes: int = 0
    data_bytes: int = 0
    index_bytes: int = 0
    filter_bytes: int = 0
    filter_keys: int = 0
    millibits: int = 0
    k: int = 0
    filter_kind: int = 1
    filter_level: int = 0
    expiring: int = 0
    min_expiry: int = 0
    max_expiry: int = 0
    expiring_bytes: int = 0
    value_logs: tuple[ValueLogUse, ...] = ()
    own_log: int = 0
    def __post_init__(self) -> None: ...
    def overlaps(self, other: KeyRange | TableMeta) -> bool: ...
    def expired(self, now: int) -> int: ...
    def expired_bytes(self, now: int) -> int: ...
    @property
    def range(self) -> KeyRange: ...
    @property
    def age(self) -> tuple[int, int]: ...
