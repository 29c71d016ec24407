"""Commands on a database with named keyspaces: --keyspace, and listings that name them."""

import struct

import pytest
import xxhash
from toolrunner import result, rows, tool

import lsmkv
from lsmkv.db import _export


@pytest.mark.parametrize(
    "line",
    [
        "db info shop",
        "db levels shop",
        "db get shop key",
        "db multi-get shop key",
        "db scan shop",
        "db find shop key",
        "db properties shop",
        "db stats shop",
        "filter ls shop",
        "filter probe shop key",
        "filter fpr shop",
        "filter heat shop",
        "filter advise shop",
        "report shop -o report.html",
        "db put shop key value --yes",
        "db delete shop key --yes",
        "db compact shop --yes",
        "db ingest shop new.sst --yes",
        "filter rebuild shop --yes",
    ],
)
def test_a_keyspace_that_does_not_exist(lab, line):
    outcome = tool(*line.split(), "--keyspace", "nobody")
    assert outcome.code == 1 and "there is no keyspace 'nobody'" in outcome.err


def test_reading_one_keyspace(shared):
    assert tool("db", "get", "shop", "ada", "--keyspace", "users").out == "Ada Lovelace\n"
    assert tool("db", "get", "shop", "ada").code == 1
    assert [row["found"] for row in rows("db", "multi-get", "shop", "ada", "--keyspace", "users")] == [True]
    assert result("db", "scan", "shop", "--count", "--keyspace", "orders") == {"count": 300}
    assert result("db", "scan", "shop", "--count") == {"count": 1}


def test_writing_one_keyspace(lab):
    for line in (
        "db put shop bob Bob --keyspace users",
        "db delete shop ada --keyspace users",
        "db ingest shop new.sst --keyspace users",
    ):
        assert tool(*line.split(), "--yes").code == 0
    with lsmkv.open("shop", "r") as db:
        assert list(db.keyspace("users")) == [b"bob", b"user:70000"]
        assert list(db) == [b"last order"]


def test_info_names_the_keyspaces(shared):
    whole, users = result("db", "info", "shop"), result("db", "info", "shop", "--keyspace", "users")
    assert whole["keyspaces"] == users["keyspaces"] == ["orders", "users"]
    assert (whole["keyspace"], users["keyspace"]) == ("", "users")
    assert (whole["tables"], users["tables"]) == (1, 1)
    assert users["smallest"] == users["largest"] == "ada"
    assert whole["strangers"] == []
    text = tool("db", "info", "shop", "--keyspace", "users").out
    assert "orders, users" in text and "format 2" in text
    assert "keyspace" not in tool("db", "info", "mydb").out


def test_find_tells_keyspaces_apart(shared):
    found = rows("db", "find", "shop", "order:00299", "--keyspace", "orders")
    assert [(row["op"], row["current"]) for row in found] == [("put", True)]
    assert found[0]["file"].endswith(".wal")
    assert tool("db", "find", "shop", "order:00299").code == 1


def test_space_counts_the_tables_of_all(shared):
    found = {row["what"]: row["files"] for row in rows("db", "space", "shop")}
    assert found["L0 blocks"] == found["users L0 blocks"] == found["orders L0 blocks"] == 1
    assert found["indexes"] == 3 and found["obsolete files"] == 0


def test_filters_of_one_keyspace(shared):
    (users,), (orders,) = (rows("filter", "ls", "shop", "--keyspace", name) for name in ("users", "orders"))
    assert (users["keys"], orders["keys"]) == (1, 251)
    assert orders["debt"] is None, "the options of the keyspace count"
    (probed,) = rows("filter", "probe", "shop", "ada", "--keyspace", "users")
    assert probed["verdict"] == "maybe" and probed["present"]


def test_rebuilt_filters_keep_their_keyspace_and_its_options(lab):
    result("filter", "rebuild", "shop", "--bits", "16", "--keyspace", "orders", "--yes")
    assert {row["keyspace"] for row in rows("sst", "ls", "shop")} >= {"orders", "users"}
    with lsmkv.open("shop", "r") as db:
        assert db.keyspace("orders").options.bits_per_key == 16
        assert db.keyspace("users").options.bits_per_key == db.options.bits_per_key == 10
        assert db.keyspace("orders").stats().total.filter.debt_tables == 0


def test_tables_say_what_they_were_written_for(shared):
    found = rows("sst", "ls", "shop")
    assert sorted(row["keyspace"] or "" for row in found) == ["", "orders", "users"]
    file = next(row["file"] for row in found if row["keyspace"] == "users")
    properties = result("sst", "info", file)["properties"]
    assert (properties["version"], properties["keyspace_id"], properties["keyspace"]) == (2, 1, "users")


def test_log_operations_show_the_id(shared):
    found = [row for row in rows("wal", "dump", "shop") if row["op"] == "put"]
    assert {row["keyspace"] for row in found} == {0, 2}
    text = tool("wal", "dump", "shop").out
    assert "keyspace 2  order:00299" in text and "keyspace 0" not in text


def test_the_manifest_shows_what_happened_to_each(shared):
    dumped = rows("manifest", "dump", "shop")
    created = [part for row in dumped for part in row["keyspaces"] if part["name"]]
    assert [(part["id"], part["name"]) for part in created] == [(1, "users"), (2, "orders")]
    assert created[1]["options"] == '{"bits_per_key": 12.0}'
    flushed = [row for row in dumped if row["reason"] == "flush"][-1]
    assert [len(part["added"]) for part in (flushed, *flushed["keyspaces"])] == [1, 1, 1]
    text = tool("manifest", "dump", "shop").out
    assert "keyspace 2  created as 'orders'" in text

    summary = result("manifest", "summarize", "shop")
    assert summary["format"] == 2
    assert [(row["id"], row["name"], row["files"][0]) for row in summary["keyspaces"]] == [
        (1, "users", 1),
        (2, "orders", 1),
    ]
    assert "keyspace orders" in tool("manifest", "summarize", "shop").out
    assert result("manifest", "check", "shop")["tables"] == 3


def test_the_timeline_has_the_totals_of_each(lab):
    with lsmkv.open("shop") as db:
        db.drop_keyspace("orders")
    found = rows("manifest", "timeline", "shop")
    assert {row["keyspace"] for row in found} == {None, "users", "orders"}
    dropped = next(row for row in found if (row["reason"] or "").startswith("drop"))
    assert (dropped["keyspace"], dropped["in_files"] > 0, dropped["files"]) == ("orders", True, 0)
    assert all(row["keyspace"] is None for row in rows("manifest", "timeline", "mydb"))


def test_a_damaged_table_of_a_keyspace_is_found(lab):
    file = next(row["file"] for row in rows("sst", "ls", "shop") if row["keyspace"] == "orders")
    with open(file, "r+b") as table:
        table.seek(20)
        table.write(b"\xff\xff")
    outcome = tool("verify", "shop", "--json")
    assert outcome.code == 1 and outcome.json["result"]["rows"][0]["file"] in file


def test_exported_statistics_of_one_keyspace(lab):
    with lsmkv.open("shop") as db:
        db.keyspace("users").get(b"ada")
        _export(db._scheduler)
    stats = result("db", "stats", "shop", "--keyspace", "users")
    assert stats["live"] and stats["stats"]["reads"]["gets"] == 1
    assert result("db", "stats", "shop")["stats"]["reads"]["gets"] == 0
    (row,) = rows("top", "shop", "--count", "1", "--keyspace", "users")
    assert row["stats"]["reads"]["gets"] == 1
    assert tool("top", "shop", "--count", "1", "--keyspace", "nobody").code == 3


def test_the_report_is_about_one_keyspace(lab):
    assert tool("report", "shop", "-o", "report.html", "--keyspace", "orders").code == 0
    with open("report.html") as file:
        text = file.read()
    assert "keyspace orders" in text and "251" in text


def test_upgrade(lab):
    assert result("db", "upgrade", "shop", "--yes") == {"path": "shop", "format_before": 2, "format": 2}
    assert "already" in tool("db", "upgrade", "shop", "--yes").out
    assert tool("db", "upgrade", "nowhere", "--yes").code == 3


@pytest.mark.parametrize(
    "line", ["verify shop", "repair shop", "db info shop", "db get shop key", "db upgrade shop --yes"]
)
def test_a_database_of_a_newer_release_is_not_called_damaged(lab, line):
    (manifest,) = (lab / "shop").glob("MANIFEST-*")
    data = bytearray(manifest.read_bytes())
    struct.pack_into("<I", data, 8, 3)
    struct.pack_into("<Q", data, 24, xxhash.xxh3_64_intdigest(bytes(data[:24]), seed=1))
    manifest.write_bytes(data)
    outcome = tool(*line.split(), "--json")
    assert outcome.code == 3
    assert outcome.json["error"]["kind"] == "format" and outcome.json["error"]["file"].endswith(manifest.name)
