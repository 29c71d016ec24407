"""How commands are declared: groups that import a module when it is called, and the options all share."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from lsmkv_tool import exits, keys
from lsmkv_tool.render.output import Output

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class ToolCommand(click.Command):
    """A command whose help ends with examples that work."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
                for example in self.examples:
                    formatter.write(" " * formatter.current_indent + example + "\n")


class LazyGroup(click.Group):
    """Names and one-line helps are known at once; the module of a command is imported when it is needed."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module = importlib.import_module(self.lazy[cmd_name][0])
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in self.lazy.items()])


class OrderedGroup(click.Group):
    """Lists its commands in the order they were written."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def group(name: str, help_: str) -> OrderedGroup:
    return OrderedGroup(name, help=help_, context_settings=CONTEXT)


def _format_option(what: str) -> click.Option:
    formats = click.Choice(keys.FORMATS)
    text = f"How {what}s are shown."
    return click.Option([f"--{what}-format"], type=formats, default="quoted", show_default=True, help=text)


def _shared(params: list[click.Parameter], keys_: bool, values: bool, changes: bool) -> None:
    params.extend(_format_option(what) for what, wanted in (("key", keys_), ("value", values)) if wanted)
    if changes:
        params.append(
            click.Option(["-y", "--yes"], is_flag=True, help="Do not ask before changing anything.")
        )
    params.append(click.Option(["--json", "json_"], is_flag=True, help="One JSON document."))
    params.append(click.Option(["--jsonl"], is_flag=True, help="One JSON object per row."))


def declare(
    parent: click.Group | None = None,
    name: str | None = None,
    *,
    example: str | tuple[str, ...],
    keys: bool = False,
    values: bool = False,
    changes: bool = False,
) -> Callable[[Callable[..., None]], ToolCommand]:
    """Makes `fn(out, **params)` a command with the shared options, its errors turned into exit codes."""

    def wrap(fn: Callable[..., None]) -> ToolCommand:
        params: list[click.Parameter] = list(reversed(getattr(fn, "__click_params__", [])))
        _shared(params, keys, values, changes)
        command_name = name or fn.__name__.rstrip("_").replace("_", "-")
        full = f"{parent.name} {command_name}" if parent else command_name

        @functools.wraps(fn)
        def run(**given: Any) -> None:
            mode = "json" if given.pop("json_") else "jsonl" if given.pop("jsonl") else "human"
            given.pop("jsonl", None)
            out = Output(
                full,
                mode,
                given.pop("key_format", "quoted"),
                given.pop("value_format", "quoted"),
                given.pop("yes", False),
            )
            _run(fn, out, given)
            if out.exit:
                click.get_current_context().exit(out.exit)

        command = ToolCommand(
            command_name, callback=run, params=params, help=fn.__doc__, context_settings=CONTEXT
        )
        command.examples = (example,) if isinstance(example, str) else example
        if parent:
            parent.add_command(command)
        return command

    return wrap


def _run(fn: Callable[..., None], out: Output, given: dict[str, Any]) -> None:
    try:
        fn(out, **given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`): stop quietly.
        _drop_stdout()
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
            _drop_stdout()


def _drop_stdout() -> None:
    """Nothing more can be written: let the interpreter not try again with what is left in the buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def path_argument(name: str = "db", metavar: str = "DB", **more: Any) -> Callable[[Any], Any]:
    return click.argument(name, metavar=metavar, type=click.Path(), **more)
