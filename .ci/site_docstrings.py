"""Adapts our docstrings and stubs for mkdocstrings, as an extension of griffe that `mkdocs.yml` names.

- An example begins with `>>>`, which Markdown takes for nested quotes: it becomes a fenced block.
- A dataclass gets a table of its fields, with the comments beside them.
- A function with overloads is shown by its plain signature; its docstring describes the result.
- `get = Store.get` in a class body chooses an inherited method. Here it would hide that as an attribute.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# From a prompt to the next empty line.
EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"  # (.+)$")


def fence(text: str) -> str:
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


def fields(cls: griffe.Class) -> str:
    """A table of the fields of a dataclass."""
    source = cls.lines_collection[cls.filepath]
    rows = []
    for name, member in cls.members.items():
        if isinstance(member, griffe.Attribute) and member.annotation is not None and not name.startswith("_"):
            comment = COMMENT.search(source[member.lineno - 1]) if member.lineno else None
            rows.append(f"| `{name}` | `{member.annotation}` | {comment[1] if comment else ''} |")
    return "\n".join(["", "", "| field | type | |", "|---|---|---|", *rows]) if rows else ""


class SiteDocstrings(griffe.Extension):
    def on_class(self, *, cls: griffe.Class, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        for name, member in list(cls.members.items()):
            if not isinstance(member, griffe.Attribute) or not isinstance(member.value, griffe.ExprAttribute):
                continue
            target = member.value.canonical_path
            if target.startswith("lsmkv") and target.endswith(f".{name}"):
                cls.del_member(name)
        # docs/options.md has the table of Options.
        if "dataclass" in cls.labels and cls.path.startswith("lsmkv.") and cls.name != "Options":
            cls.docstring = cls.docstring or griffe.Docstring("", parent=cls)
            cls.docstring.value += fields(cls)

    def on_function(self, *, func: griffe.Function, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        func.labels.discard("method descriptor")
        if func.overloads:
            func.overloads = None
            func.returns = None
            for parameter in func.parameters:
                parameter.annotation = None

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
