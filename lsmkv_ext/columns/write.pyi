from datetime import datetime, timedelta

from typing_extensions import disjoint_base

from lsmkv_ext.store import Store

@disjoint_base
class RowPairs: ...

@disjoint_base
class ColumnWrite: ...

def write_table(
    store: Store,
    table: object,
    *,
    sync: bool | None = None,
    ttl: float | timedelta | None = None,
    expire_at: float | datetime | None = None,
) -> int: ...
def write_columns(
    store: Store,
    keys: object,
    values: object,
    *,
    sync: bool | None = None,
    ttl: float | timedelta | None = None,
    expire_at: float | datetime | None = None,
) -> int: ...
