from typing import Self

from typing_extensions import disjoint_base

def occupy_standard_streams() -> None:
    """Open /dev/null wherever descriptor 0, 1 or 2 is free: no file of a database gets that number."""

@disjoint_base
class Descriptor:
    """A file descriptor that the object owns."""
    def __new__(cls, fd: int) -> Self: ...
    @property
    def fd(self) -> int: ...
    def close(self) -> None:
        """Close it. Twice is no error. Allocates nothing, so a full memory cannot keep it open."""
