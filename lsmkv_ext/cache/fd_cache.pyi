from typing import Self

from typing_extensions import disjoint_base

@disjoint_base
class FdCache:
    def __new__(cls, limit: int) -> Self: ...
    @property
    def limit(self) -> int: ...
    @property
    def n_open(self) -> int: ...
