"""`--json` and `--jsonl`: documents keep their fields."""

import json

import pytest
from catalogue import READING, WRITING
from shapes import SCHEMA_FILE, misfit
from toolrunner import tool

SHAPES = json.loads(SCHEMA_FILE.read_text())


def check(line):
    outcome = tool(*line.split(), "--json")
    document = outcome.json
    command = [word for word in line.split()[:2] if word.replace("-", "").isalpha()]
    assert outcome.code == 0 and outcome.err == ""
    assert list(document) == ["schema", "command", "result", "exit"]
    assert document["schema"] == "lsmkv-tool/1" and document["exit"] == 0
    assert line.startswith(document["command"]) and document["command"].split()[0] == command[0]
    assert misfit(document["result"], SHAPES[line]) is None


@pytest.mark.parametrize("line", READING)
def test_document_of_a_read_only_command(shared, line):
    check(line)


@pytest.mark.parametrize("line", WRITING)
def test_document_of_a_writing_command(lab, line):
    check(line)


def test_the_schema_has_no_stale_shape():
    assert SHAPES.keys() == {*READING, *WRITING}


@pytest.mark.parametrize("line", [line for line in READING if "rows" in SHAPES[line]])
def test_lines_are_the_rows_of_the_document(shared, line):
    rows = tool(*line.split(), "--json").json["result"]["rows"]
    lines = tool(*line.split(), "--jsonl")
    assert lines.code == 0 and len(lines.lines) == len(rows)
    if not line.startswith(("top", "doctor", "sst recompress")):  # their values change between runs
        assert lines.lines == rows


def test_misfit_finds_a_changed_document():
    shape = {"a": "number", "rows": [{"key": "string", "n": "any"}]}
    assert misfit({"a": 1, "rows": [{"key": "k", "n": None}]}, shape) is None
    assert misfit({"a": "1", "rows": []}, shape) == "$.a: string instead of number"
    assert misfit({"rows": []}, shape) == "$: fields differ: ['a']"
    assert misfit({"a": 1, "rows": [{"key": "k"}]}, shape) == "$.rows[0]: fields differ: ['n']"


def test_an_error_is_a_document_too(tmp_path):
    outcome = tool("db", "info", tmp_path / "nowhere", "--json")
    assert outcome.code == 3
    assert outcome.json["exit"] == 3 and outcome.json["error"]["kind"] == "cannot-open"
    assert "nowhere" in outcome.json["error"]["file"] and "nowhere" in outcome.err
    assert "result" not in outcome.json


def test_a_usage_error_is_a_document_too():
    outcome = tool("db", "scan", "--json", "--limit", "many")
    assert outcome.code == 2 and outcome.json["error"]["kind"] == "usage"
