"""The command lines in README and docs name commands and options that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from lsmkv_tool.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# In code: between backticks, or on an indented line or one of a console. Prose about the program itself is not.
LINE = re.compile(r"`(lsmkv-tool [^`\n]+)`|^(?:    |\$ )(lsmkv-tool [^\n]+)$", re.MULTILINE)


def command_lines(page):
    for quoted, alone in LINE.findall(page.read_text()):
        line = re.split(r"\s+[|>#]|\$\(", quoted or alone)[0]
        yield from re.split(r", | and ", line) if quoted else [line]


def problem(line):
    """What is wrong with the line, if anything."""
    try:
        words = shlex.split(line)[1:]
    except ValueError:
        return "not a command line"
    command, context = cli, click.Context(cli)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]!r}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context)
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"-h", "--help"}
    names |= {"--json", "--jsonl"} if command is cli else set()  # every command has them
    unknown = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)} - names
    return f"no option {sorted(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_that_a_page_names_exist(page):
    lines = {line for line in command_lines(page) if line.startswith("lsmkv-tool ")}
    assert {line: found for line in lines if (found := problem(line))} == {}


def test_wrong_command_lines_are_noticed():
    assert problem("lsmkv-tool db nonsense mydb") == "no command 'nonsense'"
    assert problem("lsmkv-tool db info mydb --nonsense=3") == "no option ['--nonsense']"
    assert problem("lsmkv-tool db info mydb --json") is None
    assert {line for page in PAGES for line in command_lines(page)} >= {"lsmkv-tool doctor", "lsmkv-tool verify mydb"}
