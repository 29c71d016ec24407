from collections.abc import Sequence
from typing import Self

from typing_extensions import disjoint_base

from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.read.dead_spans import DeadSpans
from lsmkv_ext.table.table import Table

@disjoint_base
class ReadState:
    memtables: list[Memtable]
    levels: list[list[Table]]
    spans: DeadSpans
    def __new__(
        cls,
        memtables: Sequence[Memtable],
        levels: Sequence[Sequence[Table]],
        seed: int = 0,
        spans: DeadSpans | None = None,
    ) -> Self: ...
