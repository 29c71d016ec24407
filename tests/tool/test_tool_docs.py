"""docs/tool.md is current: it has every command, help text and example."""

import inspect
import re
from pathlib import Path

import pytest
from catalogue import commands

from lsmkv_tool import make_docs

PAGE = Path(__file__).parents[2] / "docs" / "tool.md"


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_the_page_describes_the_command(name):
    text = PAGE.read_text()
    command = dict(commands())[name]
    section = re.split(rf"^### `{name}\b.*$", text, maxsplit=1, flags=re.MULTILINE)[1].split("\n### ")[0]
    assert inspect.cleandoc(command.help) in section
    for example in command.examples:
        assert f"$ {example}\n" in section
    for line in make_docs.options(command):
        assert line in section
    shown = section.split("```console")[1].split("```")[0]
    assert len(shown.splitlines()) > len(command.examples), "no output"
    assert "(exit code" not in shown


def test_the_introduction_is_current():
    assert PAGE.read_text().startswith(make_docs.INTRODUCTION)
