import os
from typing import Self

from typing_extensions import disjoint_base

from lsmkv_ext.memtable.memtable import Memtable

@disjoint_base
class LogReplay:
    def __new__(cls, path: str | os.PathLike[str], number: int, stop: int, skip_lost: bool = False) -> Self: ...
    @property
    def lost(self) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def taken(self) -> int: ...
    def fill(self, memtables: dict[int, Memtable], hash_seed: int, room: int) -> None: ...
