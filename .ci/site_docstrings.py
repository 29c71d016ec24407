"""What mkdocstrings needs to show our docstrings, as an extension of griffe (`mkdocs.yml` names it).

- An example begins with `>>>`, which Markdown takes for quotes in quotes: it becomes a fenced block.
- `get = Store.get` in the body of a class chooses among inherited methods; here it would hide them as an attribute.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# From a prompt to the next empty line.
EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


def fence(text: str) -> str:
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class SiteDocstrings(griffe.Extension):
    def on_class(self, *, cls: griffe.Class, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        for name, member in list(cls.members.items()):
            if not isinstance(member, griffe.Attribute) or not isinstance(member.value, griffe.ExprAttribute):
                continue
            target = member.value.canonical_path
            if target.startswith("lsmkv") and target.endswith(f".{name}"):
                cls.del_member(name)

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
