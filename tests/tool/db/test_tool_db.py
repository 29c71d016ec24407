"""What the commands say is so: held against the database itself."""

import base64
import json
import os
import re
from pathlib import Path

import pytest
from png_decoder import decode_png
from toolrunner import tool

import lsmkv
from lsmkv_tool.sample_db import USERS, user


def rows(*args):
    outcome = tool(*args, "--jsonl")
    assert outcome.code == 0, outcome.err
    return outcome.lines


def result(*args):
    outcome = tool(*args, "--json")
    assert outcome.code == 0, outcome.err
    return outcome.json["result"]


# db: reading ----------------------------------------------------------------------------------------------


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


def test_multi_get_says_which_is_missing(shared):
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
def test_scan_shows_what_an_iterator_sees(shared, options, arguments):
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


# db: looking ----------------------------------------------------------------------------------------------


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


def test_stats_are_those_of_the_owner_where_it_exports_them(lab):
    live = result("db", "stats", "mydb")
    assert live["live"] and live["stats"]["reads"]["gets"] > USERS / 2
    (lab / "mydb" / "STATS").unlink()
    alone = result("db", "stats", "mydb")
    assert not alone["live"] and alone["stats"]["reads"]["gets"] == 0
    assert alone["stats"]["total"]["files"] == live["stats"]["total"]["files"]


# db: changing ---------------------------------------------------------------------------------------------


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
def test_without_yes_and_without_a_terminal_nothing_changes(shared, line):
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


# sst ------------------------------------------------------------------------------------------------------


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
    assert tool("sst", "build", "out.sst", "--from", f"in.{kind}", "--yes").code == 3  # never overwritten


@pytest.mark.parametrize(
    "text", ["nonsense", '{"key": 1, "value": "x"}', '{"key": "a"}', '{"key": "hex:0", "value": ""}']
)
def test_build_names_the_line_it_cannot_read(lab, text):
    outcome = tool("sst", "build", "x.sst", "--yes", stdin='{"key": "ok", "value": ""}\n' + text + "\n")
    assert outcome.code == 2 and "line 2" in outcome.err and not Path("x.sst").exists()


def test_recompress_measures_each_codec_and_block_size(shared):
    found = result("sst", "recompress", "table.sst")
    sizes = {(row["codec"], row["block_size"]): row["size"] for row in found["rows"]}
    assert found["entries"] == 301 and len(sizes) == 8
    assert sizes["lz4", 4096] < sizes["none", 4096] and sizes["lz4", 65536] <= sizes["lz4", 1024]


def test_diff_tells_the_tables_apart(lab):
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


# filter ---------------------------------------------------------------------------------------------------


def test_filter_ls_shows_debt_and_rebuild_pays_it(lab):
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
    """design.md's table, each rate within 5 %, as `filter fpr` sees it."""
    from lsmkv import SSTWriter

    design = {5: 0.093, 6: 0.058, 8: 0.023, 10: 0.0096, 12: 0.00415, 14: 0.00184, 16: 0.00084, 20: 0.00021}
    for bits, rate in design.items():
        path = tmp_path / f"{bits}.sst"
        with SSTWriter(path, bits_per_key=bits, seed=1) as writer:  # chance would miss a bound now and then
            for i in range(40_000):
                writer.put(b"%08d" % i, b"")
        (found,) = rows("filter", "fpr", path)
        assert found["verdict"] == "as expected"
        assert found["low"] <= found["measured_fpr"] <= found["high"]
        assert found["low"] < rate * 1.05 and found["high"] > rate * 0.95


def test_heat_map_and_its_picture(lab):
    found = result("filter", "heat", "table.sst", "--png", "heat.png")
    info = result("filter", "info", "table.sst")
    assert found["blocks"] == info["blocks"] == len(found["cells"])
    assert found["mean"] == pytest.approx(info["fill"])
    width, height, _ = decode_png(Path("heat.png").read_bytes())
    assert width == 4 * info["blocks"] and height == 4
    assert tool("filter", "heat", "table.sst", "--png", "heat.png").code == 3  # never overwritten
    number = result("filter", "ls", "mydb")["rows"][3]["file"]
    assert result("filter", "heat", "mydb", "--table", int(number[:6]))["file"].endswith(number)
    assert tool("filter", "heat", "mydb", "--table", "999").code == 2


# wal, manifest --------------------------------------------------------------------------------------------


def test_the_log_as_it_was_written(shared):
    found = rows("wal", "dump", "mydb")
    assert [(row["op"], row["key"]) for row in found] == [("put", "user:00042"), ("delete", "user:00043")]
    listed, *ahead = rows("wal", "ls", "mydb")
    assert all(row["records"] == 0 for row in ahead)  # a log made ahead may be there
    assert (listed["first_seq"], listed["last_seq"]) == (found[0]["seq"], found[-1]["seq"])
    assert listed["verdict"] == "ok" and listed["synced"] == found[1]["offset"]


def test_the_manifest_amounts_to_the_tables_in_the_folder(shared):
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


def test_check_finds_missing_and_surplus_tables(lab):
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


# plan, doctor, shell, report, top -------------------------------------------------------------------------


def test_plan_splits_memory_better_than_evenly():
    found = result("plan", "--keys", "100M", "--absent", "1")
    assert found["average_bits_per_key"] == pytest.approx(10, abs=0.01)
    assert found["summed_fpr"] < found["same_memory_uniform"]["summed_fpr"] / 2
    memory = result("plan", "--keys", "100M", "--memory", "64MiB")
    assert memory["memory_bytes"] == pytest.approx(64 << 20, rel=0.01)
    quick = result("plan", "--keys", "100M", "--latency", "5us", "--read-cost", "100us")
    assert quick["microseconds_in_vain_per_lookup"] <= 5
    hits = result("plan", "--keys", "100M", "--bits", "10", "--optimize-for-hits")
    assert hits["levels"][-1]["bits_per_key"] == 0 and hits["memory_given_back"] > hits["memory_bytes"]
    assert tool("plan", "--keys", "1M", "--memory", "1M", "--target-fpr", "0.1").code == 2
    assert tool("plan", "--keys", "1M", "--bits", "200").code == 2


def test_doctor_tries_the_machine_out(tmp_path):
    found = {(row["area"], row["name"]): row for row in result("doctor", tmp_path)["rows"]}
    assert found["native", "xxh3"]["value"] in ("c", "python")
    assert found["file system", "writable"]["value"] == "yes" and ("machine", "CPU features") in found
    assert list(tmp_path.iterdir()) == []


def test_shell_runs_lines_and_remembers_the_first_failure(lab):
    lines = [
        "use mydb",
        "get user:00050",
        "# a comment",
        "",
        "get nobody",
        "db info @",
        "help",
        "help get",
        "exit",
    ]
    script = "\n".join([*lines, "get user:00050", ""])
    outcome = tool("shell", stdin=script)
    assert outcome.code == 1 and "nobody: not found" in outcome.err
    assert outcome.out.count("Person 50") == 1 and "MANIFEST-" in outcome.out and "Usage:" in outcome.out
    assert tool("shell", "mydb", stdin="get user:00050\n").code == 0
    assert tool("shell", stdin="no such command\n").code == 2
    assert tool("shell", stdin="'unfinished\n").code == 2


def test_report_is_one_page_without_references(lab):
    assert tool("report", "mydb", "-o", "r.html").code == 0
    text = Path("r.html").read_text()
    assert text.count("<section>") >= 6 and text.count("data:image/png;base64,") > 5
    assert not re.search(r"(?:src|href)=(?![\"']data:)|https?://|@import|url\(", text)
    for title in ("The tree", "I/O saved", "False positive rate", "Filter heat", "Flushes and compactions"):
        assert title in text
    assert tool("report", "mydb", "-o", "r.html").code == 3
    assert tool("report", "mydb", "-o", "r.html", "--force").code == 0


def test_report_of_an_empty_database(tmp_path):
    lsmkv.open(tmp_path / "db").close()
    assert tool("report", tmp_path / "db", "-o", tmp_path / "r.html").code == 0
    assert "No tables yet" in (tmp_path / "r.html").read_text()


def test_top_without_figures_says_how_to_get_them(tmp_path):
    lsmkv.open(tmp_path / "db").close()
    outcome = tool("top", tmp_path / "db")
    assert outcome.code == 3 and "stats_export=True" in outcome.err


def test_rates_are_differences_over_time():
    from lsmkv_tool.db.stats_export import Sample
    from lsmkv_tool.top import COUNTERS, rates

    def stats(n):
        tree = {}
        for path in COUNTERS.values():
            inner = tree
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = n
        return tree

    before, after = Sample(1, 10.0, stats(100)), Sample(1, 12.0, stats(400))
    assert set(rates(before, after).values()) == {150.0}
    assert rates(None, after) is None and rates(Sample(2, 10.0, stats(0)), after) is None
