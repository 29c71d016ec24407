from typing_extensions import disjoint_base

def set_least(least: int) -> int: ...

@disjoint_base
class DeadSpans:
    least: int
    recorded: int
    cuts: int
    @property
    def items(self) -> list[tuple[bytes, bytes, int, int]]: ...
