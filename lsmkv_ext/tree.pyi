from typing import Self

from typing_extensions import disjoint_base

from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.read.read_state import ReadState

@disjoint_base
class Tree:
    active: Memtable | None
    state: ReadState | None
    seed: int
    path: str
    def __new__(cls, path: str, seed: int) -> Self: ...
