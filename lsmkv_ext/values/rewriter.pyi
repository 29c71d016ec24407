from typing import Self

from typing_extensions import disjoint_base

from lsmkv_ext.values.reader import ValueLog

@disjoint_base
class ValueRewriter:
    def __new__(cls, log: ValueLog) -> Self: ...
    def write(self, pointer: bytes) -> None: ...
    def sync(self) -> None: ...
