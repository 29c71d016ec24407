"""Unusable arguments of every read-only command: a usage error, never a traceback."""

import os
import shutil

import click
import pytest
from catalogue import ON_DATABASE, ON_TABLE, commands
from toolrunner import tool

NUMBERS = ["-1", "nan", "inf", "1e999", "9" * 30, "0x10", "", "many"]
TEXTS = ["hex:zz", "base64:!", "quoted:\\q", "x" * 3000]
READING = sorted({*ON_DATABASE, *ON_TABLE, "plan --keys 1000", "report mydb -o page.html --force"})
# Options whose usable values print forever or write files.
APART = {("top", "count"), ("top", "interval"), ("report", "target"), ("filter heat", "picture")}


def option_lines():
    known = dict(commands())
    lines = {}
    for line in READING:
        name = next(name for name in (" ".join(line.split()[:2]), line.split()[0]) if name in known)
        for param in known[name].params:
            if isinstance(param, click.Option) and not param.is_flag and (name, param.name) not in APART:
                lines.setdefault((name, param.opts[-1]), line)
    return sorted(lines.items())


@pytest.mark.parametrize(
    ("option", "line"), option_lines(), ids=lambda item: "" if isinstance(item, str) else " ".join(item)
)
def test_values_of_options(lab, option, line):
    for value in [*NUMBERS, *TEXTS]:
        outcome = tool(*line.split(), option[1], value)
        assert outcome.code in (0, 1, 2, 3) and "Traceback" not in outcome.err
        if value == "nan" and outcome.code == 0:
            assert option[1] in ("--from", "--to", "--prefix"), "NaN was taken for a number"


@pytest.mark.parametrize("line", [line for line in READING if not line.startswith("plan")])
def test_paths_that_are_nothing_of_ours(lab, line):
    os.mkdir("empty")
    os.mkfifo("fifo")
    os.symlink("nowhere", "link")
    for name in ("bytes", "000001.sst", "000001.wal", "000001.vlog", "MANIFEST-000001"):
        with open(name, "wb") as file:
            file.write(os.urandom(300))
    places = ["empty", "fifo", "link", "bytes", "000001.sst", "000001.wal", "000001.vlog", "MANIFEST-000001"]
    for path in [*places, "", "nowhere", "/dev/null", "x" * 5000]:
        words = [path if word in ("mydb", "table.sst") else word for word in line.split()]
        outcome = tool(*words, "--json")
        assert outcome.code in (0, 1, 2, 3, 4) and "Traceback" not in outcome.err
        assert outcome.code or line.startswith(("sst diff", "wal", "vlog", "sst ls", "sst verify", "sst recompress"))


@pytest.mark.parametrize("damage", range(12))
def test_damaged_databases(lab, damage):
    """Each command reports damage, or works around it."""
    import random

    source = random.Random(damage)
    shutil.copytree(source.choice(["media", "shop"]), "hurt")
    for _ in range(3):
        path = os.path.join("hurt", source.choice(sorted(os.listdir("hurt"))))
        with open(path, "rb") as file:
            data = bytearray(file.read())
        if data and source.random() < 0.7:
            for _ in range(source.choice([1, 20])):
                data[source.randrange(len(data))] = source.randrange(256)
        else:
            del data[source.randrange(len(data) + 1) :]
        with open(path, "wb") as file:
            file.write(data)
    for line in ON_DATABASE:
        outcome = tool(*line.replace("mydb", "hurt").split())
        assert outcome.code in (0, 1, 2, 3, 4) and "Traceback" not in outcome.err
    assert tool("report", "hurt", "-o", "page.html").code in (0, 1, 3)
