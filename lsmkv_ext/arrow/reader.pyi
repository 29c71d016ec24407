from typing import Literal, Self, overload

from typing_extensions import disjoint_base

@disjoint_base
class ColumnReader:
    def __new__(cls, n_columns: int) -> Self: ...

@overload
def column_list(source: object, nulls: Literal[False] = False) -> list[bytes]: ...
@overload
def column_list(source: object, nulls: bool) -> list[bytes | None]: ...
