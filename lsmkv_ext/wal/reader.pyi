import os
from typing import Any, Self

from typing_extensions import disjoint_base

HEAD_SIZE: int

@disjoint_base
class LogReader:
    path: str
    def __new__(cls, path: str | os.PathLike[str]) -> Self: ...

def check_log(path: str | os.PathLike[str], number: int, *, salvage: bool = False) -> dict[str, Any]: ...
def log_keyspaces(path: str | os.PathLike[str], number: int, stop: int, limit: int) -> set[int]: ...
