from collections.abc import Iterator
from typing import Any

from lsmkv_ext.table.table import Table

def value_problems(table: Table) -> Iterator[tuple[str, str]]: ...
def verify_table(table: Table, *, deep: bool = True) -> list[dict[str, Any]]: ...
