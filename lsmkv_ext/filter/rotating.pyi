from collections.abc import Callable

from typing_extensions import Buffer, disjoint_base

from lsmkv_ext.filter.layered import LayeredBloom
from lsmkv_ext.port.wall_clock import ManualClock

@disjoint_base
class RotatingBloom(LayeredBloom):
    def __init__(
        self,
        capacity: int,
        fpr: float | None = None,
        *,
        window: float | None = None,
        clock: Callable[[], float] | ManualClock | None = None,
        seed: int = 0,
    ) -> None: ...
    def clear(self) -> None: ...
    @staticmethod
    def from_bytes(data: Buffer, *, clock: Callable[[], float] | ManualClock | None = None) -> RotatingBloom: ...
    @property
    def capacity(self) -> int: ...
    @property
    def window(self) -> float | None: ...
    @property
    def designed_fpr(self) -> float: ...
    @property
    def saturated(self) -> bool: ...
