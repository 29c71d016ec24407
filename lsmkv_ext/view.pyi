from collections.abc import Sequence

from lsmkv_ext.memtable import Memtable
from lsmkv_ext.table import Table

class View:
    memtables: list[Memtable]
    levels: list[list[Table]]
    def __init__(
        self, memtables: Sequence[Memtable], levels: Sequence[Sequence[Table]], seed: int = 0
    ) -> None: ...
