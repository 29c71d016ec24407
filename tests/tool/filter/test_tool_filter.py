"""`filter` commands, checked against the filters."""

from pathlib import Path

import pytest
from png_decoder import decode_png
from toolrunner import result, rows, tool

import lsmkv


def test_rebuild_leaves_no_filter_debt(lab):
    assert {row["debt"] for row in result("filter", "ls", "mydb")["rows"]} == {None}
    assert result("filter", "rebuild", "mydb", "--bits", "14", "--yes")["rebuilt"] > 5
    found = result("filter", "ls", "mydb")["rows"]
    assert all(row["bits_per_key"] >= 14 and row["k"] == 8 and row["debt"] is None for row in found)
    with lsmkv.open("mydb", "r") as db:
        assert len(list(db.keys())) == result("db", "scan", "mydb", "--count")["count"]
    assert tool("filter", "rebuild", "mydb", "--level", "5", "--yes").code == 2


def test_probe_shows_why_a_key_is_denied(shared):
    (found,) = rows("filter", "probe", "table.sst", "user:00050")
    assert found["verdict"] == "maybe" and found["present"] and all(found["set"])
    assert len(found["bits"]) == result("filter", "info", "table.sst")["k"]
    denied = [row for i in range(50) for row in rows("filter", "probe", "table.sst", f"user:0005{i}x")]
    assert len(denied) == 50 and not any(row["present"] for row in denied)
    for row in denied:
        assert (row["verdict"] == "no") == (not all(row["set"]))
    assert rows("filter", "probe", "table.sst", "zebra") == []  # outside the key range


def test_measured_rate_agrees_with_the_design(tmp_path):
    """The measured rates are within 5 % of the designed ones."""
    from lsmkv import SSTWriter

    design = {5: 0.093, 6: 0.058, 8: 0.023, 10: 0.0096, 12: 0.00415, 14: 0.00184, 16: 0.00084, 20: 0.00021}
    for bits, rate in design.items():
        path = tmp_path / f"{bits}.sst"
        with SSTWriter(path, bits_per_key=bits, seed=1) as writer:  # a random seed would sometimes miss the bound
            for i in range(40_000):
                writer.put(b"%08d" % i, b"")
        (found,) = rows("filter", "fpr", path)
        assert found["verdict"] == "as expected"
        assert found["low"] <= found["measured_fpr"] <= found["high"]
        assert found["low"] < rate * 1.05 and found["high"] > rate * 0.95


def test_heat_map_as_json_and_png(lab):
    found = result("filter", "heat", "table.sst", "--png", "heat.png")
    info = result("filter", "info", "table.sst")
    assert found["blocks"] == info["blocks"] == len(found["cells"])
    assert found["mean"] == pytest.approx(info["fill"])
    width, height, _ = decode_png(Path("heat.png").read_bytes())
    assert (width, height) == (1200, 800), info["blocks"]
    assert tool("filter", "heat", "table.sst", "--png", "heat.png").code == 3  # no overwrite
    number = result("filter", "ls", "mydb")["rows"][3]["file"]
    assert result("filter", "heat", "mydb", "--table", int(number[:6]))["file"].endswith(number)
    assert tool("filter", "heat", "mydb", "--table", "999").code == 2
