import os
from collections.abc import Iterator
from typing import Any, Self

from typing_extensions import disjoint_base

from lsmkv_ext.memtable import Memtable

OP_NAMES: dict[int, str]

@disjoint_base
class LogWriter:
    path: str
    number: int
    def __new__(
        cls,
        path: str | os.PathLike[str],
        number: int,
        *,
        mode: str = "mmap",
        previous_last_seq: int = 0,
        seed: int = 0,
    ) -> Self: ...
    @property
    def mode(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def synced(self) -> int: ...
    @property
    def syncs(self) -> int: ...
    @property
    def sync_ns(self) -> int: ...
    def sync(self) -> None: ...
    def append(self, payload: bytes, first_seq: int, count: int) -> None: ...
    def close(self) -> None: ...

def replay_log(
    path: str | os.PathLike[str],
    number: int,
    memtable: Memtable | None,
    *,
    expect_seq: int = 0,
    salvage: bool = False,
) -> dict[str, Any]: ...
def decode_batch(
    payload: bytes, count: int, first_seq: int
) -> list[tuple[str, bytes, bytes | None, int]]: ...
def dump_log(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]: ...
