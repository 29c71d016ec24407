from typing import Self

from typing_extensions import disjoint_base

from lsmkv_ext.tree import Tree

@disjoint_base
class Forest:
    trees: list[Tree]
    def __new__(cls, default: Tree) -> Self: ...
