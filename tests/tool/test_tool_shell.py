"""`shell`."""

from toolrunner import tool


def test_shell_runs_lines_and_remembers_the_first_failure(lab):
    lines = [
        "use mydb",
        "get user:00050",
        "# a comment",
        "",
        "get nobody",
        "db info @",
        "help",
        "help get",
        "exit",
    ]
    script = "\n".join([*lines, "get user:00050", ""])
    outcome = tool("shell", stdin=script)
    assert outcome.code == 1 and "nobody: not found" in outcome.err
    assert outcome.out.count("Person 50") == 1 and "MANIFEST-" in outcome.out and "Usage:" in outcome.out
    assert tool("shell", "mydb", stdin="get user:00050\n").code == 0
    assert tool("shell", stdin="no such command\n").code == 2
    assert tool("shell", stdin="'unfinished\n").code == 2
