from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar, overload

from typing_extensions import Buffer

from lsmkv_ext.store import Store

_T = TypeVar("_T")

class UpdatingStore(Store):
    def add(self, key: Buffer, n: int = 1, default: int = 0, *, sync: bool | None = None) -> int: ...
    def max(self, key: Buffer, n: int, *, sync: bool | None = None) -> int: ...
    def min(self, key: Buffer, n: int, *, sync: bool | None = None) -> int: ...
    def append(self, key: Buffer, suffix: Buffer, *, sync: bool | None = None) -> int: ...
    def compare_and_set(
        self,
        key: Buffer,
        expected: Buffer | None,
        new: Buffer | None,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> bool: ...
    def touch(
        self,
        key: Buffer,
        ttl: float | timedelta | None = None,
        *,
        expire_at: float | datetime | None = None,
        sync: bool | None = None,
    ) -> bool: ...
    def modify(
        self, key: Buffer, function: Callable[[bytes | None], Buffer | None], *, sync: bool | None = None
    ) -> bytes | None: ...
    @overload
    def pop(self, key: Buffer) -> bytes: ...
    @overload
    def pop(self, key: Buffer, default: _T, /) -> bytes | _T: ...
    def setdefault(self, key: Buffer, default: Buffer = b"") -> bytes: ...
