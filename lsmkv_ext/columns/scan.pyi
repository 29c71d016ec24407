from collections.abc import Sequence
from typing import Self

from typing_extensions import Buffer, CapsuleType, disjoint_base

from lsmkv_ext.arrow.stream import BatchSource
from lsmkv_ext.port.handle import Dependent
from lsmkv_ext.read.scan import Scan
from lsmkv_ext.reader import Reader

@disjoint_base
class ColumnScan(Scan): ...

@disjoint_base
class ScanSource(BatchSource): ...

@disjoint_base
class ArrowScan(Dependent):
    def __arrow_c_stream__(self, requested_schema: object = None) -> CapsuleType: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...

def scan_columns(
    reader: Reader,
    *,
    start: Buffer | None = None,
    stop: Buffer | None = None,
    prefix: Buffer | None = None,
    reverse: bool = False,
    columns: Sequence[str] = ("key", "value"),
    batch_rows: int = 16384,
    key_type: str = "binary",
    value_type: str = "binary",
    fill_cache: bool = True,
) -> ArrowScan: ...
