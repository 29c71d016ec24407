"""The `lsmkv-tool` command: the tree of commands, and `main`."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence

import click

from lsmkv_tool.command import CONTEXT, LazyGroup
from lsmkv_tool.exits import INTERRUPTED, USAGE

COMMANDS = {
    "db": ("lsmkv_tool.db.commands", "A database: look, read, write, maintain."),
    "sst": ("lsmkv_tool.sst.commands", "Single tables, inside a database or lying anywhere."),
    "filter": ("lsmkv_tool.filter.commands", "The Bloom filters of tables: what they cost, save and should be."),
    "wal": ("lsmkv_tool.wal.summary", "Write-ahead logs."),
    "manifest": ("lsmkv_tool.manifest.reader", "The record of which tables make up the database."),
    "plan": ("lsmkv_tool.plan", "Capacity planning from numbers alone."),
    "verify": ("lsmkv_tool.verify", "Check every byte of a database; exits 1 on any damage."),
    "repair": ("lsmkv_tool.repair", "Rebuild a database from what can be read (dry run by default)."),
    "doctor": ("lsmkv_tool.doctor", "The build, the machine and the limits lsmkv runs under."),
    "top": ("lsmkv_tool.top", "Live view of a running database."),
    "report": ("lsmkv_tool.report", "One self-contained HTML page about a database."),
    "shell": ("lsmkv_tool.shell", "An interactive prompt over the same commands."),
    "completion": ("lsmkv_tool.completion", "Print the completion script for a shell."),
}

cli = LazyGroup(
    "lsmkv-tool",
    lazy=COMMANDS,
    help="""See inside an lsmkv database, its tables and its filters.

Commands only read unless they say otherwise, and work on a database that another process has open.
Keys are text, hex:00ff, base64:AP8=, quoted:a\\x00b or text:hex:literal.

Exit codes: 0 fine, 1 a finding (damage, key not found, check failed), 2 usage, 3 cannot open or locked,
4 I/O error, 130 interrupted.""",
    context_settings=CONTEXT,
)
cli = click.version_option(package_name="lsmkv", prog_name="lsmkv-tool")(cli)


def run(args: Sequence[str]) -> int:
    """One command line, without the program's name; returns the exit code."""
    try:
        code = cli.main(args=list(args), prog_name="lsmkv-tool", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show(sys.stderr)
        if "--json" in args:
            print(
                json.dumps(
                    {
                        "schema": "lsmkv-tool/1",
                        "command": None,
                        "error": {
                            "kind": "usage",
                            "message": error.format_message(),
                            "file": None,
                            "offset": None,
                        },
                        "exit": USAGE,
                    },
                    indent=2,
                )
            )
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("lsmkv-tool: interrupted\n")
        return INTERRUPTED


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A path or a value that the terminal's encoding does not have is shown escaped, not a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
