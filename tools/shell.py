"""`shell`: a prompt over the same commands."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import click

from lsmkv_tool import exits
from lsmkv_tool.command import declare
from lsmkv_tool.render.output import Output

HELP = """Type any command without `lsmkv-tool`: `db info mydb`, `plan --keys 10M`.
  use DB       from now on @ stands for DB, and `get KEY` means `db get DB KEY`
  help [CMD]   this text, or the help of a command
  exit         leave (or Ctrl-D)"""


def expand(words: list[str], database: str | None, shortcuts: frozenset[str]) -> list[str]:
    """The full command line: @ becomes the database, a bare db command gets `db` and it in front."""
    if database is None:
        return words
    if words[0] in shortcuts:
        words = ["db", words[0], "@", *words[1:]]
    return [database if word == "@" else word for word in words]


def _shortcuts() -> frozenset[str]:
    from lsmkv_tool.cli import COMMANDS
    from lsmkv_tool.db.commands import db

    return frozenset(db.commands) - frozenset(COMMANDS)


class Session:
    def __init__(self, database: str | None) -> None:
        self.database = database
        self.shortcuts = _shortcuts()
        self.code = exits.FINE

    def one(self, line: str) -> bool:
        """Runs one line; False to leave."""
        from lsmkv_tool.cli import run

        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            sys.stderr.write(f"lsmkv-tool: {error}\n")
            self.code = self.code or exits.USAGE
            return True
        if not words:
            return True
        if words[0] in ("exit", "quit"):
            return False
        if words[0] == "use" and len(words) == 2:
            self.database = words[1]
        elif words[0] == "help":
            code = run([*expand(words[1:], self.database, self.shortcuts), "--help"]) if words[1:] else 0
            if not words[1:]:
                print(HELP)
            self.code = self.code or code
        elif words[0] == "shell":
            sys.stderr.write("lsmkv-tool: already in the shell\n")
        else:
            code = run(expand(words, self.database, self.shortcuts))
            self.code = self.code or code
        return True


def _completer(session: Session) -> Callable[[str, int], str | None]:
    from lsmkv_tool.cli import cli

    def candidates(line: str, text: str) -> list[str]:
        words = line.split()
        if line and not line.endswith(" "):
            words = words[:-1]
        command: click.Command = cli
        context = click.Context(cli)
        for word in words:
            if not isinstance(command, click.Group):
                break
            command = command.get_command(context, word) or click.Command("none")
        if isinstance(command, click.Group):
            names = command.list_commands(context)
            if not words:
                names = [*names, "use", "help", "exit", *(session.shortcuts if session.database else ())]
        else:
            names = [option for param in command.params for option in param.opts if option.startswith("-")]
        return sorted(name for name in names if name.startswith(text))

    def complete(text: str, state: int) -> str | None:
        import readline

        found = candidates(readline.get_line_buffer()[: readline.get_endidx()], text)
        return found[state] + " " if state < len(found) else None

    return complete


def _interactive(session: Session) -> None:
    try:
        import readline

        readline.set_completer_delims(" ")
        readline.set_completer(_completer(session))
        readline.parse_and_bind("tab: complete")
    except ImportError:
        pass
    print("lsmkv-tool shell: `help` says what there is, `exit` leaves")
    while True:
        prompt = f"lsmkv {session.database}> " if session.database else "lsmkv> "
        try:
            line = input(prompt)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        if not session.one(line):
            return


@declare(example="echo 'get user:00042' | lsmkv-tool shell mydb")
@click.argument("db", metavar="[DB]", type=click.Path(), required=False)
def shell(out: Output, db: str | None) -> None:
    """Read commands from a prompt (or from stdin), without starting the tool anew for each.

    With DB given, @ stands for it and the db commands need no path: `get KEY`, `scan --limit 3`. From a pipe
    the exit code is that of the first command that did not end well.
    """
    session = Session(db)
    if sys.stdin.isatty():
        _interactive(session)
        return
    for line in sys.stdin:
        if not session.one(line):
            break
    out.exit = session.code
