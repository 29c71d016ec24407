"""`shell`: run commands from a prompt."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import click

from lsmkv_tool import exits
from lsmkv_tool.command import declare
from lsmkv_tool.render.output import Output

HELP = """Enter any command without `lsmkv-tool`: `db info mydb`, `plan --keys 10M`.
  use DB       set the database: @ then means DB, and `get KEY` means `db get DB KEY`
  help [CMD]   print this text, or the help of a command
  exit         leave the shell (or Ctrl-D)"""


def expand(words: list[str], database: str | None, shortcuts: frozenset[str]) -> list[str]:
    """Replace @ with the database, and prefix a bare `db` command with `db` and the database."""
    if database is None:
        return words
    if words[0] in shortcuts:
        words = ["db", words[0], "@", *words[1:]]
    return [database if word == "@" else word for word in words]


def db_shortcuts() -> frozenset[str]:
    """Return the `db` commands that may be typed without `db`."""
    from lsmkv_tool.cli import COMMANDS
    from lsmkv_tool.db.commands import db

    return frozenset(db.commands) - frozenset(COMMANDS)


class Session:
    def __init__(self, database: str | None) -> None:
        self.database = database
        self.shortcuts = db_shortcuts()
        self.code = exits.FINE  # of the first command that failed

    def execute(self, line: str) -> bool:
        """Run one line. Return False to leave the shell."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            sys.stderr.write(f"lsmkv-tool: {error}\n")
            self.code = self.code or exits.USAGE
            return True
        match words:
            case []:
                pass
            case ["exit" | "quit", *_]:
                return False
            case ["use", database]:
                self.database = database
            case ["help"]:
                print(HELP)
            case ["help", *command]:
                self._run([*expand(command, self.database, self.shortcuts), "--help"])
            case ["shell", *_]:
                sys.stderr.write("lsmkv-tool: already in the shell\n")
            case _:
                self._run(expand(words, self.database, self.shortcuts))
        return True

    def _run(self, words: list[str]) -> None:
        from lsmkv_tool.cli import run

        code = run(words)
        self.code = self.code or code


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


def _interact(session: Session) -> None:
    try:
        import readline

        readline.set_completer_delims(" ")
        readline.set_completer(_completer(session))
        readline.parse_and_bind("tab: complete")
    except ImportError:
        pass  # this Python has no readline: the prompt works without completion
    print("lsmkv-tool shell. Enter `help` for help, `exit` to leave.")
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
        if not session.execute(line):
            return


@declare("shell", example="echo 'get user:00042' | lsmkv-tool shell mydb")
@click.argument("db", metavar="[DB]", type=click.Path(), required=False)
def shell(out: Output, db: str | None) -> None:
    """Run commands from a prompt or from stdin, in one process.

    With DB given, @ means DB, and `db` commands need no path: `get KEY`, `scan --limit 3`. If stdin is not a
    terminal, the exit code is that of the first command that failed.
    """
    session = Session(db)
    if sys.stdin.isatty():
        _interact(session)
        return
    for line in sys.stdin:
        if not session.execute(line):
            break
    out.exit = session.code
