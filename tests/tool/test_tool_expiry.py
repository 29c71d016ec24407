"""Commands show and set expiries."""

import time
from pathlib import Path

import pytest
from toolrunner import result, rows, tool

import lsmkv

MOMENT = "2100-01-01T00:00:00.000+00:00"
SECONDS = 4102444800


@pytest.fixture
def timed(tmp_path):
    """A database with an expiry in a table, one in its log, and an entry without."""
    db = lsmkv.open(tmp_path / "timed")
    db.put(b"table", b"v", expire_at=SECONDS)
    db.put(b"plain", b"v")
    db.flush()
    db.put(b"log", b"v", expire_at=SECONDS)
    yield db
    db.close()


def test_listings_show_expiries(timed):
    (table,) = Path(timed.path).glob("*.sst")
    assert [(row["key"], row["expires"]) for row in rows("sst", "scan", table)] == [("plain", None), ("table", MOMENT)]
    assert [row["expires"] for row in rows("sst", "blocks", table, "--block", "0")] == [None, MOMENT]
    assert [(row["key"], row["expires"]) for row in rows("wal", "dump", timed.path)][-1] == ("log", MOMENT)
    for key, expires in (("table", MOMENT), ("log", MOMENT), ("plain", None)):
        assert [row["expires"] for row in rows("db", "find", timed.path, key) if row["seq"]] == [expires]
    assert f"expires {MOMENT}" in tool("sst", "scan", table).out
    assert "expires" not in tool("db", "find", timed.path, "plain").out


def test_tables_that_differ_in_an_expiry_differ(tmp_path):
    for name, options in (("a.sst", {}), ("b.sst", {"expire_at": SECONDS})):
        with lsmkv.SSTWriter(tmp_path / name) as table:
            table.put(b"k", b"v", **options)
    assert tool("sst", "diff", tmp_path / "a.sst", tmp_path / "a.sst").code == 0
    assert tool("sst", "diff", tmp_path / "a.sst", tmp_path / "b.sst").code == 1


def test_put_with_a_ttl(timed):
    path = timed.path
    timed.close()
    assert result("db", "put", path, "k", "v", "--ttl", "1000", "--yes")["ttl"] == 1000
    with lsmkv.open(path) as db:
        assert 900 < db.ttl(b"k") <= 1000
    assert tool("db", "put", path, "k", "v", "--ttl", "0", "--yes").code == 2


def test_reset_clock(timed):
    path = timed.path
    timed.close()
    ahead = lsmkv.ManualClock(SECONDS + 5)
    with lsmkv.open(path, clock=ahead) as db:
        assert b"table" not in db
    done = result("db", "reset-clock", path, "--yes")
    assert done["clock_before"] > MOMENT and done["clock"] < MOMENT
    assert done["clock"][:4] == time.strftime("%Y", time.gmtime())
    with lsmkv.open(path) as db:
        assert b"table" in db
