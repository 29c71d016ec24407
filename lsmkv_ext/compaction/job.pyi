import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

from typing_extensions import disjoint_base

from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.table.table import Table

@disjoint_base
class FileNumbers:
    def __new__(cls, first: int = 1) -> Self: ...
    def next(self) -> int: ...
    @property
    def peek(self) -> int: ...
    def bump(self, used: int) -> None: ...

@disjoint_base
class Job:
    def __new__(
        cls,
        inputs: Sequence[Memtable | Table | list[Table]],
        *,
        directory: str | os.PathLike[str],
        numbers: FileNumbers,
        output_level: int = 0,
        target_file_size: int = ...,
        compression: int = 1,
        block_size: int = 4096,
        millibits: int = 10000,
        milliwidth: int = 0,
        drop_filter_if_bottom: bool = False,
        seed: int = 0,
        verify_filters: bool = True,
        prefix: tuple[int, int] = (0, 0),
        below: Sequence[tuple[bytes, bytes]] | None = None,
        grandparents: Sequence[tuple[bytes, bytes, int]] = (),
        max_grandparent_overlap: int = ...,
        single_output: bool = False,
        restart_interval: int = 0,
        newest_by_seq: bool = False,
        start: bytes | None = None,
        stop: bytes | None = None,
        keyspace: tuple[int, bytes] = (0, b""),
        now: int = 0,
        collect: Iterable[int] = (),
        large_values: tuple[int, int] | None = None,
    ) -> Self: ...
    def run(self) -> dict[str, Any]: ...
    def cancel(self) -> None: ...
    @property
    def progress(self) -> dict[str, int]: ...
