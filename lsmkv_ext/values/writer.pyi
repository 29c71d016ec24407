import os
from collections.abc import Iterable
from typing import Self

from typing_extensions import Buffer, disjoint_base

from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.values.reader import ValueLog

HEAD_SIZE: int

@disjoint_base
class ValueWriter:
    log: ValueLog
    path: str
    def __new__(cls, path: str | os.PathLike[str], number: int, fds: FdCache | None = None) -> Self: ...
    @property
    def number(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def synced(self) -> int: ...
    def append(self, value: Buffer, compression: int = 0) -> bytes: ...
    def copy(self, source: ValueLog, pointer: bytes) -> bytes: ...
    def sync(self) -> None: ...

def write_again(log: ValueLog, pointers: Iterable[bytes]) -> None: ...
