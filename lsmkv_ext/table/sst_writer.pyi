import os
from datetime import datetime, timedelta
from typing import Any, Self

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class SSTWriter:
    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        compression: str | None = "lz4",
        block_size: int = 4096,
        restart_interval: int = 8,
        bits_per_key: float = 10,
        seed: int | None = None,
        level: int = 0,
        number: int = 0,
        large_value_threshold: int | None = None,
        large_value_compression: str | None = "lz4",
    ) -> Self: ...
    def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        seq: int = 0,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> None: ...
    def put_arrow(self, table: object, *, seq: int = 0) -> None: ...
    def delete(self, key: Buffer, *, seq: int = 0) -> None: ...
    def delete_range(self, start: Buffer, stop: Buffer, *, seq: int = 0) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def summary(self) -> dict[str, Any] | None: ...
    def finish(self) -> dict[str, Any]: ...
    def abort(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, exc_type: object, exc: object, tb: object) -> None: ...
