from array import array
from typing import Any, final

DISTRIBUTIONS: dict[str, int]
OPS: dict[str, int]

@final
class KeyGenerator:
    num: int
    limit: int
    position: int
    def __init__(
        self,
        distribution: str,
        num: int,
        seed: int,
        *,
        theta: float = 0.99,
        power_a: float = 0.002312,
        power_b: float = 0.3467,
    ) -> None: ...
    def take(self, count: int) -> array[int]: ...

@final
class OperationMix:
    def __init__(
        self, keys: KeyGenerator, weights: dict[str, float], seed: int, scan: tuple[Any, ...] = ("uniform", 100)
    ) -> None: ...
    def take(self, count: int) -> tuple[bytearray, array[int], array[int]]: ...

def make_keys(numbers: array[int], key_size: int, suffix: bytes = b"") -> list[bytes]: ...

@final
class ValueGenerator:
    def __init__(
        self,
        seed: int,
        sizes: tuple[Any, ...] = ("fixed", 100),
        compression_ratio: float = 0.5,
        pool: bytes | None = None,
        piece: int = 100,
    ) -> None: ...
    def value(self, number: int, generation: int) -> bytes: ...
    def values(self, numbers: array[int], generation: int) -> list[bytes]: ...

@final
class ExpectedState:
    capacity: int
    present: int
    def __init__(self, capacity: int) -> None: ...
    def grow(self, capacity: int) -> None: ...
    def clear(self) -> None: ...
    def apply(self, codes: bytes | bytearray, numbers: array[int], generation: int) -> bytearray: ...
    def generation(self, number: int) -> int: ...
    def next_present(self, number: int, step: int = 1) -> int | None: ...
    def advance(self, number: int, count: int, step: int = 1) -> int | None: ...
    def to_bytes(self) -> bytes: ...
    def load(self, data: bytes) -> None: ...
