import os
from typing import Any

from lsmkv_ext.values.reader import ValueLog

def value_logs_of(path: str | os.PathLike[str], number: int, stop: int) -> dict[int, int]: ...
def check_values(
    path: str | os.PathLike[str],
    number: int,
    stop: int,
    known_synced: int,
    value_logs: list[ValueLog],
    known: dict[int, int],
    *,
    salvage: bool = False,
) -> dict[str, Any]: ...
def write_values_again(
    path: str | os.PathLike[str],
    number: int,
    stop: int,
    known_synced: int,
    value_logs: list[ValueLog],
    known: dict[int, int],
) -> None: ...
