from typing_extensions import disjoint_base

@disjoint_base
class ValueView:
    def __buffer__(self, flags: int, /) -> memoryview: ...
