"""Writes docs/tool.md: every command with its real output, run on the sample database.

python -m lsmkv_tool.make_docs docs/tool.md
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from lsmkv_tool.cli import COMMANDS, cli, run
from lsmkv_tool.command import ToolCommand
from lsmkv_tool.render.output import SCHEMA
from lsmkv_tool.sample_db import make

MAX_LINES = 24
MAX_WIDTH = 150

INTRODUCTION = f"""# lsmkv-tool

See inside an lsmkv database, its tables and its filters. This page is made by `python -m lsmkv_tool.make_docs
docs/tool.md`, which runs every example below on a small database; long outputs are cut off at `...`.

## What holds for all commands

- **Reading is the default.** Commands that change something say so, and ask first; `--yes` answers. All
  others work on a database that another process has open, and write nothing.
- **Keys** are text, `hex:00ff`, `base64:AP8=`, `quoted:a\\x00b` (as the tool prints them), or
  `text:hex:literal` where the text itself begins like one of these.
- **`--key-format`, `--value-format`**: `quoted` (printable ASCII, the rest as `\\xNN`), `hex`, `utf8`,
  `size`, `none`.
- **Output.** Data goes to stdout, diagnostics to stderr. Tables for people; colour and progress bars only on
  a terminal.
- **`--json`** prints one document, `{{"schema": "{SCHEMA}", "command", "result", "error", "exit"}}`:
  `result` absent when nothing could be found out and `error` (`kind`, `message`, `file`, `offset`) absent
  when nothing failed. Listings have their rows in `result.rows`; **`--jsonl`** prints just these, one a line.
  Fields are added without notice; renaming, retyping or removing one raises the schema's number.
- **Exit codes.** 0 fine; 1 a finding (damage, key not found, a check failed); 2 usage; 3 cannot open, or
  locked; 4 I/O error; 130 interrupted.
- **Files.** `sst`, `filter` and `wal` commands work on a single file lying anywhere, and on damaged ones as
  far as they can be read. No symbolic link is followed, and nothing but files of lsmkv's own names is ever
  deleted.

Shell completion: `eval "$(lsmkv-tool completion bash)"` in `~/.bashrc`, the same with `zsh` in `~/.zshrc`, or
`lsmkv-tool completion fish > ~/.config/fish/completions/lsmkv-tool.fish`.
"""

DAMAGE = """## Damage

One flipped byte in a table, and what the tool makes of it:
"""


def execute(line: str) -> str:
    """What a command line prints, stderr included, and its exit code if it is not 0."""
    words = shlex.split(line)
    if words[0] == "lsmkv-tool" and not {"|", "$"} & set(line):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = run(words[1:])
        text = printed.getvalue()
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = ["bash", "-c", line]
        done = subprocess.run(
            shell, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        text, code = done.stdout + done.stderr, done.returncode
    lines = [cut(part) for part in text.replace(f"{Path.cwd()}/", "").splitlines()]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], "..."]
    return "\n".join([f"$ {line}", *lines, *([f"(exit code {code})"] if code else [])])


def cut(line: str) -> str:
    return line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 3] + "..."


def block(*lines: str) -> str:
    return "```console\n" + "\n".join(execute(line) for line in lines) + "\n```\n"


def options(command: click.Command) -> Iterator[str]:
    shared = {"json_", "jsonl", "key_format", "value_format", "yes"}
    for param in command.params:
        if isinstance(param, click.Option) and param.name not in shared and param.help:
            names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
            yield f"- {names}: {param.help}"


def describe(name: str, command: ToolCommand) -> str:
    usage = " ".join(param.make_metavar(click.Context(command)) for param in command.params
                     if isinstance(param, click.Argument))  # fmt: skip
    parts = [f"### `{f'{name} {usage}'.strip()}`\n", inspect.cleandoc(command.help or "") + "\n"]
    listed = list(options(command))
    if listed:
        parts.append("\n".join(listed) + "\n")
    parts.append(block(*command.examples))
    return "\n".join(parts)


def commands(group: click.Group, prefix: str) -> Iterator[tuple[str, ToolCommand]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, ToolCommand):
            yield f"{prefix}{name}", command


@contextlib.contextmanager
def fresh(sample: Path) -> Iterator[None]:
    """A copy of the sample as the working directory, so that no example sees what another changed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "sample")
        shutil.copytree(sample, copy)
        before = Path.cwd()
        os.chdir(copy)
        try:
            yield
        finally:
            os.chdir(before)


def damage() -> str:
    table = sorted(Path("mydb").glob("*.sst"))[0]
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    table.write_bytes(data)
    lines = ["lsmkv-tool verify mydb", "lsmkv-tool repair mydb", "lsmkv-tool repair mydb --apply --yes"]
    return DAMAGE + "\n" + block(*lines, "lsmkv-tool verify mydb --deep")


def document(sample: Path) -> str:
    parts = [INTRODUCTION]
    context = click.Context(cli)
    alone: list[str] = []
    for name, (_, summary) in COMMANDS.items():
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            parts.append(f"## {name}\n\n{summary}\n")
            found = list(commands(command, f"{name} "))
        elif isinstance(command, ToolCommand):
            found = [(name, command)]
            if not alone:
                parts.append("## On their own\n")
            alone.append(name)
        for full, inner in found:
            with fresh(sample):
                parts.append(describe(full, inner))
    with fresh(sample):
        parts.append(damage())
    return "\n".join(parts)


def main() -> None:
    from lsmkv.compaction import scheduler

    scheduler.IDLE_SECONDS = 3600.0  # the sample keeps its L0 however long the examples take
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        text = document(Path(folder))
    Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
