from typing import Any, Self

from typing_extensions import disjoint_base

from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.read.dead_spans import DeadSpans
from lsmkv_ext.read.read_state import ReadState

@disjoint_base
class Tree:
    keyspace: int
    active: Memtable | None
    state: ReadState | None
    spans: DeadSpans | None
    seed: int
    path: str
    def __new__(cls, path: str, seed: int, keyspace: int = 0, row_cache: object = None) -> Self: ...
    def counters(self) -> dict[str, Any]: ...
    def set_shadow_period(self, period: int) -> None: ...
