from typing import Any

from lsmkv_ext.table.table import Table

def verify_table(table: Table, *, deep: bool = True) -> list[dict[str, Any]]: ...
