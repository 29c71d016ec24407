"""`db` commands, checked against the database."""

import json
import re
from pathlib import Path

import pytest
from toolrunner import result, rows, tool

import lsmkv
from lsmkv_tool.sample_db import USERS


@pytest.mark.parametrize("notation", ["user:00050", "hex:" + b"user:00050".hex(), "base64:dXNlcjowMDA1MA=="])
def test_get_in_every_notation(shared, notation):
    with lsmkv.open("mydb", "r") as db:
        value = db.get(b"user:00050")
    assert tool("db", "get", "mydb", notation).out == value.decode() + "\n"
    assert tool("db", "get", "mydb", notation, "--raw").raw == value
    assert tool("db", "get", "mydb", notation, "--value-format", "hex").out == value.hex() + "\n"
    assert tool("db", "get", "mydb", notation, "--value-format", "size").out == f"{len(value)}\n"


def test_get_of_an_absent_key_is_a_finding(shared):
    outcome = tool("db", "get", "mydb", "nobody")
    assert (outcome.code, outcome.out) == (1, "") and "not found" in outcome.err
    assert tool("db", "get", "mydb", "nobody", "--json").json["result"]["found"] is False


def test_multi_get_marks_absent_keys(shared):
    outcome = tool("db", "multi-get", "mydb", "user:00050", "nobody", "--json")
    assert outcome.code == 1
    assert [row["found"] for row in outcome.json["result"]["rows"]] == [True, False]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ((), {}),
        (("--from", "user:00040", "--to", "user:00300"), {"start": b"user:00040", "stop": b"user:00300"}),
        (("--prefix", "user:004"), {"prefix": b"user:004"}),
        (("--reverse", "--prefix", "user:004"), {"prefix": b"user:004", "reverse": True}),
    ],
)
def test_scan_agrees_with_an_iterator(shared, options, arguments):
    with lsmkv.open("mydb", "r") as db:
        pairs = [(key.decode(), value.decode()) for key, value in db.iterator(**arguments)]
    assert len(pairs) > 50
    assert [(row["key"], row["value"]) for row in rows("db", "scan", "mydb", *options)] == pairs
    assert tool("db", "scan", "mydb", *options).out == "".join(f"{k}\t{v}\n" for k, v in pairs)
    assert [row["key"] for row in rows("db", "scan", "mydb", *options, "--no-value")] == [k for k, _ in pairs]
    assert result("db", "scan", "mydb", *options, "--count") == {"count": len(pairs)}
    assert len(rows("db", "scan", "mydb", *options, "--limit", 7)) == 7
    assert rows("db", "scan", "mydb", *options, "--limit", 0) == []


def test_scan_with_a_prefix_and_a_bound_is_refused(shared):
    assert tool("db", "scan", "mydb", "--prefix", "a", "--from", "b").code == 2


def test_find_shows_every_version_newest_first(shared):
    found = rows("db", "find", "mydb", "user:00042")
    versions = [row for row in found if row["seq"] is not None]
    assert [json.loads(row["value"])["edition"] for row in versions] == [3, 0]
    assert versions[0]["file"].endswith(".wal") and versions[0]["current"]
    assert versions[1]["level"] == 1 and versions[1]["filter"] == "maybe"
    assert [row["seq"] for row in versions] == sorted((row["seq"] for row in versions), reverse=True)
    hidden = rows("db", "find", "mydb", "user:00105")
    assert next(row for row in hidden if row["current"])["op"] == "delete_range"
    assert tool("db", "find", "mydb", "nobody").code == 1


def test_info_levels_and_space_agree_with_the_files(shared):
    info, levels, space = (result("db", name, "mydb") for name in ("info", "levels", "space"))
    sizes = {path.name: path.stat().st_size for path in Path("mydb").iterdir()}
    tables = [size for name, size in sizes.items() if name.endswith(".sst")]
    assert info["tables"] == len(tables) and info["table_bytes"] == sum(tables)
    assert (info["smallest"], info["largest"]) == ("user:00000", f"user:{USERS - 1:05d}")
    assert sum(row["files"] for row in levels["rows"]) == len(tables)
    assert sum(row["bytes"] for row in levels["rows"]) == sum(tables)
    assert info["in_use"] is False
    assert space["total"] == sum(sizes.values())


def test_the_picture_of_the_tree_has_one_bar_per_level(shared):
    lines = tool("db", "levels", "mydb", "--width", "40").out.splitlines()
    bars = [line for line in lines if re.match(r"L\d \|.{40}\|", line)]
    assert [bar[:2] for bar in bars] == ["L0", "L1"]
    assert "=" in bars[1] and "#" in bars[1]


def test_properties(shared):
    assert result("db", "properties", "mydb", "lsmkv.num-files")["rows"][0]["value"].isdecimal()
    assert tool("db", "properties", "mydb", "lsmkv.nonsense").code == 1


def test_stats_prefer_the_exported_statistics(lab):
    live = result("db", "stats", "mydb")
    assert live["live"] and live["stats"]["reads"]["gets"] > USERS / 2
    (lab / "mydb" / "STATS").unlink()
    alone = result("db", "stats", "mydb")
    assert not alone["live"] and alone["stats"]["reads"]["gets"] == 0
    assert alone["stats"]["total"]["files"] == live["stats"]["total"]["files"]


def test_put_and_delete(lab):
    assert tool("db", "put", "mydb", "hex:00ff", "base64:aGk=", "--yes").code == 0
    assert tool("db", "put", "mydb", "file", "--value-file", "new.jsonl", "--yes").code == 0
    assert tool("db", "put", "mydb", "pipe", "--value-file", "-", "--yes", stdin="from stdin").code == 0
    assert tool("db", "delete", "mydb", "user:00050", "user:00051", "--yes").code == 0
    assert tool("db", "delete", "mydb", "--from", "user:01000", "--to", "user:02000", "--yes").code == 0
    with lsmkv.open("mydb", "r") as db:
        assert db.get(b"\x00\xff") == b"hi" and db.get(b"pipe") == b"from stdin"
        assert db.get(b"file") == Path("new.jsonl").read_bytes()
        assert db.get(b"user:00050") is None and db.get(b"user:00052") is not None
        assert not list(db.keys(b"user:01000", b"user:02000")) and db.get(b"user:02000") is not None


@pytest.mark.parametrize(
    "line",
    [
        "db put mydb k v",
        "db delete mydb k",
        "db compact mydb",
        "db flush mydb",
        "db destroy mydb",
        "db checkpoint mydb copy",
        "db ingest mydb new.sst",
        "filter rebuild mydb",
        "sst build made.sst --from new.jsonl",
    ],
)
def test_without_yes_and_terminal_nothing_changes(shared, line):
    outcome = tool(*line.split())
    assert outcome.code == 2 and "--yes" in outcome.err


def test_the_tool_keeps_the_options_of_the_database(lab):
    before = Path("mydb/OPTIONS").read_bytes()
    assert tool("db", "put", "mydb", "k", "v", "--yes").code == 0
    assert Path("mydb/OPTIONS").read_bytes() == before


def test_flush_compact_checkpoint_ingest(lab):
    with lsmkv.open("mydb", "r") as db:
        before = dict(db.items())
    assert tool("db", "flush", "mydb", "--yes").code == 0
    assert result("wal", "ls", "mydb")["rows"][-1]["entries"] == 0
    assert tool("db", "compact", "mydb", "--yes").code == 0
    assert result("db", "levels", "mydb")["rows"][0]["level"] > 0
    assert tool("db", "checkpoint", "mydb", "copy", "--yes").code == 0
    assert tool("db", "ingest", "mydb", "new.sst", "--yes").code == 0
    with lsmkv.open("copy", "r") as db:
        assert dict(db.items()) == before
    with lsmkv.open("mydb", "r") as db:
        assert dict(db.items()) == before | {b"user:70000": b"{}"}
    assert tool("db", "checkpoint", "mydb", "copy", "--yes").code == 3
