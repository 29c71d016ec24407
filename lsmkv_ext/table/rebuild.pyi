import os
from typing import Any

from lsmkv_ext.table.table import Table

def rebuild_table_filter(
    table: Table,
    out_path: str | os.PathLike[str],
    *,
    millibits: int,
    milliwidth: int = 0,
    level: int = 0,
    number: int = 0,
    verify: bool = True,
    prefix_kind: int = 0,
    prefix_arg: int = 0,
    keyspace: tuple[int, bytes] = (0, b""),
) -> dict[str, Any]: ...
