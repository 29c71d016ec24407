"""Every command at 80 columns: no line is too long, no number and no name is broken or cut."""

import re

import pytest
from catalogue import ON_DATABASE, READING, commands
from toolrunner import tool

from lsmkv_tool.render import fit
from lsmkv_tool.render.columns import PROBLEM, Column, FileColumn, key, num, prose

WIDTH = 80
ON_MEDIA = [line.replace("mydb", db) for db in ("media", "damaged") for line in ON_DATABASE]
ON_MEDIA += [f"{line} --keyspace photos" for line in ON_MEDIA if line.startswith("filter") and "probe" not in line]
ON_MEDIA += ["filter probe media photo/000007.jpg --keyspace photos", "db scan media --keyspace sessions --limit 3"]
# Their lines are data: keys and values of any length.
DATA = ("db scan", "db get", "sst scan", "sst diff", "wal dump", "db properties", "completion")
# What they print differs between two runs.
MEASURED = ("doctor", "sst recompress", "top", "db stats")
WIDE_NOTE = re.compile(r"\(.*: with --wide\)")


def printed(line, monkeypatch, width):
    if width is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(width))
    outcome = tool(*line.split())
    assert outcome.code in (0, 1), outcome.err
    return [text for text in outcome.out.splitlines() if not WIDE_NOTE.fullmatch(text)]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("line", [*READING, *ON_MEDIA])
def test_lines_fit_and_words_are_whole(shared, monkeypatch, line, width):
    narrow = printed(line, monkeypatch, width)
    if not line.startswith(DATA):
        assert [text for text in narrow if len(text) > width] == []
    if not line.startswith((*MEASURED, "backups", "db levels", "filter heat")):
        whole = {word for text in printed(line, monkeypatch, None) for word in text.split()}
        words = {word for text in narrow for word in text.split()}
        cut = {word for word in words - whole if fit.ELLIPSIS in word}
        assert words - cut <= whole
        assert not cut or line.startswith("db find"), "only values may lose their middle"


NAMES = sorted({"", *(name.split()[0] for name, _ in commands()), *(name for name, _ in commands())})


@pytest.mark.parametrize("name", NAMES)
def test_help_is_whole(monkeypatch, name):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    text = tool(*name.split(), "--help").out
    examples = text.partition("Example")[2]
    assert [line for line in text.removesuffix(examples).splitlines() if len(line) > WIDTH] == []
    assert not re.search(r"[a-z,]\.\.\.\s*$", text.removesuffix(examples), re.MULTILINE)


def test_wide_prints_all_columns(shared, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    narrow = tool("sst", "ls", "media")
    assert "with --wide" in narrow.out and "codec" not in narrow.out.splitlines()[0]
    wide = tool("sst", "ls", "media", "--wide").out
    assert "codec" in wide.splitlines()[0] and "with --wide" not in wide
    monkeypatch.delenv("COLUMNS")
    assert tool("sst", "ls", "media").out == wide


def test_columns_give_way_by_rank():
    columns = [
        FileColumn("file", "file"),
        num("size", "size", rank=2),
        num("seq", "seq", rank=1),
        prose("note", "note"),
    ]
    row = {"file": "/data/db/000012.sst", "size": 12345, "seq": 67890, "note": "a note of five words"}
    assert fit.fit(columns, [row], None).left_out == []
    found = fit.fit(columns, [row], 41)
    assert found.left_out == ["size"] and [column.title for column in found.columns] == ["file", "seq", "note"]
    assert fit.fit(columns, [row], 12).left_out == ["size", "seq"]


def test_cells_wrap_between_words_and_keys_lose_their_middle():
    columns = [key("key", "key"), PROBLEM]
    row = {"key": "user:" + "0" * 90 + "42", "problem": "the block at offset 4096 has 12 KiB and is damaged"}
    ((shown, problem),) = fit.fit(columns, [row], 50).rows
    assert shown[0].startswith("user:0") and shown[0].endswith("042") and fit.ELLIPSIS in shown[0]
    assert " ".join(problem) == row["problem"] and max(map(len, problem)) <= 50
    assert any("12 KiB" in line for line in problem), "a number and its unit stay together"


def test_headings_wrap_between_words():
    found = fit.fit([num("wasted reads", "n"), Column("name", "name")], [{"n": 1, "name": "ada"}], 12)
    assert found.heading == [["wasted", "reads"], ["name"]]


def test_wide_characters_take_two_columns():
    assert fit.text_width("键") == 2
    assert fit.text_width(fit.shorten("键" * 40, 16)) <= 16


def test_a_column_without_a_word_takes_no_room():
    found = fit.fit([Column("name", "name"), Column("", "mark")], [{"name": "ada", "mark": ""}], 80)
    assert found.widths == [4, 0] and found.heading == [["name"], [""]]
