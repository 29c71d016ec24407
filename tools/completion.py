"""`completion`: print a shell completion script."""

from __future__ import annotations

import click

from lsmkv_tool.command import declare
from lsmkv_tool.render.output import Output


@declare("completion", example='eval "$(lsmkv-tool completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(out: Output, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash, add the example below to ~/.bashrc. For zsh, add it to ~/.zshrc with `zsh` in place of `bash`.
    For fish, save the output as ~/.config/fish/completions/lsmkv-tool.fish.
    """
    from click.shell_completion import get_completion_class

    from lsmkv_tool.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "lsmkv-tool", "_LSMKV_TOOL_COMPLETE").source()
    out.result({"shell": shell, "script": script}, lambda printer: printer.line(script))
