"""`sst` commands, checked against the tables."""

import base64
import json
import os
from pathlib import Path

import pytest
from toolrunner import result, rows, tool

import lsmkv
from lsmkv_tool.sample_db import user


def test_sections_and_blocks_cover_the_file(shared):
    layout = result("sst", "layout", "table.sst")
    at = 0
    for section in layout["sections"]:
        assert section["offset"] == at
        at += section["stored"]
    assert at == os.path.getsize("table.sst") and layout["sections"][-1]["part"] == "footer"
    blocks = layout["blocks"]
    assert blocks == result("sst", "blocks", "table.sst")["rows"]
    assert [b["offset"] for b in blocks[1:]] == [b["offset"] + b["stored"] for b in blocks[:-1]]
    assert sum(block["entries"] for block in blocks) == result("sst", "ls", "table.sst")["rows"][0]["entries"]
    entries = [row for i in range(len(blocks)) for row in rows("sst", "blocks", "table.sst", "--block", i)]
    assert [row["key"] for row in entries] == [row["key"] for row in rows("sst", "scan", "table.sst")]
    assert tool("sst", "blocks", "table.sst", "--block", len(blocks)).code == 2


def test_scan_of_a_table_shows_deletes_and_sequence_numbers(shared):
    found = rows("sst", "scan", "table.sst", "--from", "user:00299")
    assert [(row["op"], row["key"], row["seq"]) for row in found] == [
        ("put", "user:00299", 300),
        ("delete", "user:99998", 400),
    ]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_build_makes_a_sorted_table_from_text(lab, kind):
    pairs = {b"b": b"2", b"a": b"\x00\xff", b"gone": None, b"c,": b'"q"'}
    if kind == "jsonl":
        lines = [{"key": "b", "value": "1"}, {"key": "c,", "value": '"q"'}, {"key": "gone", "value": None}]
        lines += [{"key": "a", "value": "base64:" + base64.b64encode(b"\x00\xff").decode()}]
        text = "\n".join(json.dumps(line) for line in [*lines, {"key": "b", "value": "2"}])
    else:
        text = 'key,value\nb,1\n"c,","""q"""\ngone\na,hex:00ff\nb,2\n'
    Path(f"in.{kind}").write_text(text)
    options = ("--bits-per-key", "14", "--block-size", "1K", "--compression", "none")
    made = result("sst", "build", "out.sst", "--from", f"in.{kind}", *options, "--yes")
    assert made["entries"] == 4 and made["deletes"] == 1
    found = rows("sst", "scan", "out.sst", "--value-format", "hex")
    assert {row["key"].encode(): row["value"] for row in found} == {
        key: None if value is None else value.hex() for key, value in pairs.items()
    }
    info = result("sst", "info", "out.sst")
    assert info["filter"]["asked_bits_per_key"] == 14 and info["properties"]["compression"] is None
    assert tool("sst", "build", "out.sst", "--from", f"in.{kind}", "--yes").code == 3  # no overwrite


@pytest.mark.parametrize(
    "text", ["nonsense", '{"key": 1, "value": "x"}', '{"key": "a"}', '{"key": "hex:0", "value": ""}']
)
def test_build_names_a_malformed_line(lab, text):
    outcome = tool("sst", "build", "x.sst", "--yes", stdin='{"key": "ok", "value": ""}\n' + text + "\n")
    assert outcome.code == 2 and "line 2" in outcome.err and not Path("x.sst").exists()


def test_recompress_measures_each_codec_and_block_size(shared):
    found = result("sst", "recompress", "table.sst")
    sizes = {(row["codec"], row["level"], row["block_size"]): row["size"] for row in found["rows"]}
    assert found["entries"] == found["sampled"] == 301 and len(sizes) == 20
    for block_size in (1024, 4096, 16384, 65536):
        small = [sizes["zstd", 3, block_size], sizes["lz4", None, block_size], sizes["none", None, block_size]]
        assert small == sorted(small)
    assert sizes["lz4", None, 65536] <= sizes["lz4", None, 1024]
    (blocks,) = (row["blocks"] for row in found["rows"] if row["codec"] == "lz4" and row["block_size"] == 4096)
    data = result("sst", "info", "table.sst")["properties"]
    assert (sizes["lz4", None, 4096], blocks) == (data["data_bytes"], data["n_blocks"])


def test_recompress_of_a_sample_is_scaled_up(lab):
    from lsmkv import SSTWriter

    with SSTWriter("large.sst", block_size=512) as writer:
        for i in range(20_000):
            writer.put(b"%08d" % i, b"record %d " % (i % 7) * 5)
    whole = result("sst", "recompress", "large.sst")
    part = result("sst", "recompress", "large.sst", "--limit", 1000)
    assert whole["sampled"] == 20_000 and 500 <= part["sampled"] <= 1000
    assert part["entries"] == 20_000 and part["raw"] == whole["raw"]
    for one, other in zip(part["rows"], whole["rows"], strict=True):
        assert one["codec"] == other["codec"] and 0.8 < one["ratio"] / other["ratio"] < 1.25


def test_recompress_of_a_database_and_without_zstd(shared):
    from lsmkv_ext.port import zstd

    found = result("sst", "recompress", "mydb")
    assert found["entries"] == found["sampled"] > 0
    zstd.use("missing")
    try:
        assert {row["codec"] for row in result("sst", "recompress", "mydb")["rows"]} == {"none", "lz4"}
    finally:
        zstd.use("c")


def test_diff_of_two_tables(lab):
    from lsmkv import SSTWriter

    with SSTWriter("other.sst") as writer:
        writer.put(b"user:00000", b"changed")
        for i in range(2, 300):
            writer.put(*user(i))
        writer.put(b"zebra", b"new")
    outcome = tool("sst", "diff", "table.sst", "other.sst", "--value-format", "none")
    assert (outcome.code, outcome.out) == (1, "! user:00000\n- user:00001\n- user:99998\n+ zebra\n")
    shown = tool("sst", "diff", "table.sst", "other.sst", "--limit", 1).out
    assert shown == f"! user:00000\t{user(0)[1].decode()}\tchanged\n"
    found = tool("sst", "diff", "table.sst", "other.sst", "--json")
    assert found.json["exit"] == found.code == 1
    assert [row["side"] for row in found.json["result"]["rows"]] == ["both", "first", "first", "second"]


@pytest.mark.parametrize(
    ("extractor", "words"),
    [
        (None, None),
        (4, "first 4 bytes"),
        (b"/", "up to byte 0x2f"),
        ([8, 4], "first 4 and 8 bytes"),
        ([1, 2, 9], "first 1, 2 and 9 bytes"),
    ],
)
def test_the_prefixes_of_a_filter_in_words(tmp_path, extractor, words):
    with lsmkv.open(tmp_path / "db", prefix_extractor=extractor) as db:
        db.put(b"key", b"value")
    (table,) = (tmp_path / "db").glob("*.sst")
    assert result("filter", "info", table)["prefix"] == words
