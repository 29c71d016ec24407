"""The examples in the help texts work."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import READING, WRITING, commands
from toolrunner import tool

EXAMPLES = [(name, example) for name, command in commands() for example in command.examples]


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_example_works(lab, name, example):
    words = shlex.split(example)
    if words[0] == "lsmkv-tool" and "|" not in words:
        outcome = tool(*words[1:])
        assert (outcome.code, outcome.err) == (0, "")
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = ["bash", "-c", example]
        done = subprocess.run(shell, env=os.environ | {"PATH": path}, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
    assert name.split()[0] in example


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_help_shows_the_example_and_the_options(name):
    outcome = tool(*name.split(), "--help")
    assert outcome.code == 0
    assert "Example" in outcome.out and f"lsmkv-tool {name}" in outcome.out.replace("| ", "")
    assert "--json" in outcome.out


def test_the_catalogue_names_every_command():
    listed = READING + WRITING
    missing = [name for name, _ in commands() if not any(line.startswith(name) for line in listed)]
    assert missing == ["shell"]
