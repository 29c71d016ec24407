from collections.abc import Iterable
from typing import Any, BinaryIO, Literal, Self, TypeVar, overload

from typing_extensions import Buffer, disjoint_base

from lsmkv_ext.port.handle import Dependent
from lsmkv_ext.read.cursor import Cursor
from lsmkv_ext.read.iterator import Iterator

_T = TypeVar("_T")

@disjoint_base
class Reader(Dependent):
    @overload
    def get(
        self,
        key: Buffer,
        default: None = None,
        *,
        verify_checksums: bool = True,
        fill_cache: bool = True,
        expect: Literal["hit"] | None = None,
        copy: Literal[True] = True,
    ) -> bytes | None: ...
    @overload
    def get(
        self,
        key: Buffer,
        default: _T,
        *,
        verify_checksums: bool = True,
        fill_cache: bool = True,
        expect: Literal["hit"] | None = None,
        copy: Literal[True] = True,
    ) -> bytes | _T: ...
    @overload
    def get(
        self,
        key: Buffer,
        default: _T = ...,
        *,
        verify_checksums: bool = True,
        fill_cache: bool = True,
        expect: Literal["hit"] | None = None,
        copy: bool,
    ) -> bytes | memoryview | _T: ...
    def open_value(self, key: Buffer) -> BinaryIO: ...
    def __getitem__(self, key: Buffer, /) -> bytes: ...
    def __contains__(self, key: object, /) -> bool: ...
    @overload
    def multi_get(self, keys: Iterable[Buffer], default: None = None) -> list[bytes | None]: ...
    @overload
    def multi_get(self, keys: Iterable[Buffer], default: _T) -> list[bytes | _T]: ...
    def ttl(self, key: Buffer) -> float | None: ...
    def _on_seek_debt(self) -> None: ...
    def _on_dead_debt(self) -> None: ...
    @overload
    def iterator(
        self,
        *,
        reverse: bool = False,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Buffer | None = None,
        include_key: Literal[True] = True,
        include_value: Literal[True] = True,
        fill_cache: bool = True,
        copy: Literal[True] = True,
    ) -> Iterator[tuple[bytes, bytes]]: ...
    @overload
    def iterator(
        self,
        *,
        reverse: bool = False,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Buffer | None = None,
        include_key: Literal[True] = True,
        include_value: Literal[False],
        fill_cache: bool = True,
        copy: bool = True,
    ) -> Iterator[bytes]: ...
    @overload
    def iterator(
        self,
        *,
        reverse: bool = False,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Buffer | None = None,
        include_key: Literal[False],
        include_value: Literal[True] = True,
        fill_cache: bool = True,
        copy: Literal[True] = True,
    ) -> Iterator[bytes]: ...
    @overload
    def iterator(
        self,
        *,
        reverse: bool = False,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Buffer | None = None,
        include_key: bool = True,
        include_value: bool = True,
        fill_cache: bool = True,
        copy: bool = True,
    ) -> Iterator[Any]: ...
    def cursor(
        self,
        *,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        prefix: Buffer | None = None,
        fill_cache: bool = True,
    ) -> Cursor: ...
    def _explain(self, key: Buffer) -> dict[str, Any]: ...

@disjoint_base
class SnapshotBase(Reader):
    def __init__(self, source: Reader, moment: SnapshotBase | None = None) -> None: ...
    @property
    def sequence(self) -> int: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
