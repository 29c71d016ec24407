from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

def uninterruptible(work: Callable[[], _T], defer_interrupt: bool = False) -> _T: ...
