from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

def undivided(work: Callable[[], _T], patient: bool = False) -> _T: ...
