"""Declaration of commands: lazily imported groups, shared options, errors mapped to exit codes."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from lsmkv_tool import exits, keys
from lsmkv_tool.render.output import Output

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class ToolCommand(click.Command):
    """A command whose help ends with examples. Tests run every example."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
                for example in self.examples:
                    formatter.write(" " * formatter.current_indent + example + "\n")


class LazyGroup(click.Group):
    """A group that imports a command's module on first use. `lazy` maps names to (module, help line)."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module = importlib.import_module(self.lazy[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in self.lazy.items()])


class OrderedGroup(click.Group):
    """A group that lists its commands in declaration order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command)) for name, command in self.commands.items()])


def summary(command: click.Command) -> str:
    """Return the first paragraph of a command's help. click would cut it to one line."""
    paragraph = inspect.cleandoc(command.help or "").split("\n\n", 1)[0]
    return " ".join(paragraph.split())


def group(name: str, help_: str, commands: Sequence[click.Command]) -> OrderedGroup:
    return OrderedGroup(name, commands=commands, help=help_, context_settings=CONTEXT)


def declare(
    name: str,
    *,
    example: str | tuple[str, ...],
    key_format: bool = False,
    value_format: bool = False,
    writes: bool = False,
    table: bool = False,
) -> Callable[[Callable[..., None]], ToolCommand]:
    """Turn `fn(out, **params)` into the command `name`, such as "db get", with the shared options."""

    def wrap(fn: Callable[..., None]) -> ToolCommand:
        params: list[click.Parameter] = list(reversed(getattr(fn, "__click_params__", [])))
        if key_format:
            params.append(_format_option("key"))
        if value_format:
            params.append(_format_option("value"))
        if writes:
            params.append(click.Option(["-y", "--yes"], is_flag=True, help="Do not ask for confirmation."))
        if table:
            params.append(click.Option(["--wide"], is_flag=True, help="Print all columns, also on a narrow terminal."))
        params.append(click.Option(["--json", "json_"], is_flag=True, help="Print one JSON document."))
        params.append(click.Option(["--jsonl"], is_flag=True, help="Print one JSON object per row."))

        @functools.wraps(fn)
        def run(*, json_: bool, jsonl: bool, **given: Any) -> None:
            out = Output(
                name,
                "json" if json_ else "jsonl" if jsonl else "text",
                given.pop("key_format", "quoted"),
                given.pop("value_format", "quoted"),
                given.pop("yes", False),
                given.pop("wide", False),
            )
            _run(fn, out, given)
            if out.exit:
                click.get_current_context().exit(out.exit)

        command = ToolCommand(name.split()[-1], callback=run, params=params, help=fn.__doc__, context_settings=CONTEXT)
        command.examples = (example,) if isinstance(example, str) else example
        return command

    return wrap


def _format_option(what: str) -> click.Option:
    formats = click.Choice(keys.FORMATS)
    help_ = f"How to print {what}s."
    return click.Option([f"--{what}-format"], type=formats, default="quoted", show_default=True, help=help_)


def _run(fn: Callable[..., None], out: Output, given: dict[str, Any]) -> None:
    try:
        fn(out, **given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does.
        discard_stdout()
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, click.ClickException):
            raise
        failure = exits.classify(error)
        if failure is None:
            raise
        try:
            out.fail(failure)
            sys.stdout.flush()
        except OSError:
            discard_stdout()


def discard_stdout() -> None:
    """Point stdout at /dev/null, or the interpreter fails to flush its buffer again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def path_argument(name: str = "db", metavar: str = "DB", **more: Any) -> Callable[[Any], Any]:
    return click.argument(name, metavar=metavar, type=click.Path(), **more)
