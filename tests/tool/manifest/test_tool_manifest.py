"""`manifest` commands, checked against the directory."""

import os
from pathlib import Path

from toolrunner import result, rows, tool


def test_the_edits_add_up_to_the_tables_in_the_directory(shared):
    edits = rows("manifest", "dump", "mydb")
    names = set()
    for edit in edits:
        names |= {file["number"] for file in edit["added"]}
        names -= set(edit["removed"])
    assert names == {int(path.name[:6]) for path in Path("mydb").glob("*.sst")}
    summary = result("manifest", "summarize", "mydb")
    assert summary["edits"] == len(edits) and sum(summary["files"]) == len(names)
    last = rows("manifest", "timeline", "mydb")[-1]
    assert last["files"] == len(names) and last["bytes"] == result("db", "info", "mydb")["table_bytes"]


def test_check_finds_missing_and_obsolete_tables(lab):
    table = sorted(Path("mydb").glob("*.sst"))[0]
    Path("mydb/000900.sst").write_bytes(table.read_bytes())
    assert tool("manifest", "check", "mydb").code == 0
    os.truncate(table, 10)
    cut = tool("manifest", "check", "mydb", "--json")
    table.unlink()
    missing = tool("manifest", "check", "mydb", "--json")
    for outcome, what in ((cut, "bytes"), (missing, "missing")):
        assert outcome.code == 1
        bad, surplus = outcome.json["result"]["rows"]
        assert bad["file"] == table.name and what in bad["problem"]
        assert surplus["severity"] == "note" and surplus["file"] == "000900.sst"
