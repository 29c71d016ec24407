from typing import Self

from typing_extensions import disjoint_base

from lsmkv_ext.port.handle import Dependent

@disjoint_base
class Scan(Dependent):
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
