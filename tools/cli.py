"""The `lsmkv-tool` program: the command tree and `main`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import click

from lsmkv_tool.command import CONTEXT, LazyGroup, discard_stdout
from lsmkv_tool.exits import FINE, INTERRUPTED, IO, USAGE, Failure
from lsmkv_tool.render.output import Output

COMMANDS = {
    "db": ("lsmkv_tool.db.commands", "Inspect, read, write and maintain a database."),
    "sst": ("lsmkv_tool.sst.commands", "Inspect, build and compare tables, in a database or standalone."),
    "filter": ("lsmkv_tool.filter.commands", "Inspect, measure and tune Bloom filters."),
    "wal": ("lsmkv_tool.wal.commands", "Inspect write-ahead logs."),
    "vlog": ("lsmkv_tool.vlog.commands", "Inspect value logs, which hold large values."),
    "manifest": ("lsmkv_tool.manifest.commands", "Inspect the manifest, which lists a database's tables."),
    "plan": ("lsmkv_tool.plan", "Plan the filters of a database that does not exist yet."),
    "verify": ("lsmkv_tool.verify", "Check every byte of a database; exits 1 on any damage."),
    "repair": ("lsmkv_tool.repair", "Rebuild a database from its readable files (dry run by default)."),
    "backup": ("lsmkv_tool.backup", "Add a version of a database to a repository of backups."),
    "restore": ("lsmkv_tool.backup", "Create a database from a version in a repository of backups."),
    "backups": ("lsmkv_tool.backup", "List the versions in a repository of backups."),
    "prune": ("lsmkv_tool.backup", "Remove old versions from a repository of backups."),
    "doctor": ("lsmkv_tool.doctor", "Check the build, the machine and its limits."),
    "top": ("lsmkv_tool.top", "Watch a running database."),
    "report": ("lsmkv_tool.report.command", "Write a self-contained HTML report about a database."),
    "shell": ("lsmkv_tool.shell", "Run commands from a prompt."),
    "completion": ("lsmkv_tool.completion", "Print a shell completion script."),
}

cli = LazyGroup(
    "lsmkv-tool",
    lazy=COMMANDS,
    help="""Inspect and maintain lsmkv databases, tables, filters, logs and manifests.

Commands are read-only unless they say otherwise. Read-only commands work while another process has the
database open. Keys are text, hex:00ff, base64:AP8=, quoted:a\\x00b or text:hex:literal.

Exit codes: 0 success, 1 finding (damage, key not found, failed check), 2 usage error, 3 cannot open or
locked, 4 I/O error, 130 interrupted.""",
    context_settings=CONTEXT,
)
cli = click.version_option(package_name="lsmkv", prog_name="lsmkv-tool")(cli)


def run(args: Sequence[str]) -> int:
    """Run one command line, given without the program's name, and return its exit code."""
    try:
        code = cli.main(args=list(args), prog_name="lsmkv-tool", standalone_mode=False)
        return code if isinstance(code, int) else FINE
    except click.ClickException as error:
        error.show(sys.stderr)
        if "--json" in args:
            Output(None, "json").print_error(Failure(USAGE, "usage", error.format_message()))
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("lsmkv-tool: interrupted\n")
        return INTERRUPTED
    except SystemExit:
        # click exits if the reader of a help text has closed the pipe, as `head` does.
        return FINE
    except OSError as error:
        # Commands report their own errors, so this one comes from printing a help text or the version.
        sys.stderr.write(f"lsmkv-tool: cannot write to standard output: {error.strerror or error}\n")
        discard_stdout()
        return IO


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Escape characters that the terminal's encoding lacks instead of raising.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
