"""`report`: the page and its verdict."""

import os
import re
import time
from pathlib import Path

import pytest
from toolrunner import tool

import lsmkv
from lsmkv_tool.db import stats_export
from lsmkv_tool.report import quick_verify, verdict

TITLES = ("Tree", "Reads saved by filters", "Filters", "Reads and writes", "Disk space", "Logs", "Options")


def page_of(db, *args):
    """Write a report. Return the outcome and the page."""
    outcome = tool("report", db, "-o", "r.html", "--force", *args)
    return outcome, Path("r.html").read_text()


def card(text):
    """Return the kind and the words of the verdict."""
    kind, inner = re.search(r'<div class="verdict (\w+)">(.*?)</div>', text, re.DOTALL).groups()
    return kind, re.sub(r"<[^>]*>", " ", inner)


@pytest.mark.parametrize("db", ["mydb", "shop", "media", "damaged"])
def test_report_is_self_contained(lab, db):
    _, text = page_of(db)
    assert not re.search(r"(?:src|href)=(?![\"']data:)|https?://|@import|url\(", text)
    assert [title for title in TITLES if f"<h2>{title}" not in text.replace("Options of", "Options")] == []
    assert text.index('class="verdict') < text.index('class="tiles"') < text.index("<section>")


def test_a_page_is_overwritten_only_by_force(lab):
    assert tool("report", "mydb", "-o", "r.html").code == 0
    assert tool("report", "mydb", "-o", "r.html").code == 3
    assert tool("report", "mydb", "-o", "r.html", "--force").code == 0


def test_a_sound_database_is_healthy(lab):
    Path("mydb/STATS").unlink()  # errors that the process had
    outcome, text = page_of("mydb")
    files, size = len(os.listdir("mydb")), sum(path.stat().st_size for path in Path("mydb").iterdir())
    kind, words = card(text)
    assert outcome.code == 0 and kind == "good" and "Healthy" in words
    assert f"All {files} files ({size / 1024:.0f} KiB) were read" in words


@pytest.mark.parametrize("limit", ["1GiB", "100KiB"])
def test_the_verdict_names_a_flipped_byte(lab, limit):
    """In a table, a filter and a value log, whether all tables are read or some."""
    outcome, text = page_of("damaged", "--verify", limit)
    kind, words = card(text)
    found = {name: words.count(name) for name in sorted(os.listdir("damaged"))}
    assert outcome.code == 1 and kind == "bad"
    assert "filter unusable" in words
    if limit == "1GiB":
        assert sum(found.values()) == 3 and "checksum mismatch" in words
    else:
        assert re.search(r"\d+ KiB of \d+ KiB were read: \d of \d tables whole", words)


def test_a_database_above_the_limit_is_read_in_part(lab):
    sizes = {str(path): path.stat().st_size for path in Path("media").glob("*.sst")}
    chosen = quick_verify.choose(sizes, 60_000)
    assert 0 < sum(sizes[path] for path in chosen) <= 60_000
    assert quick_verify.choose(sizes, 0) == set()
    assert quick_verify.choose(sizes, sum(sizes.values())) == sizes.keys()
    checked = quick_verify.quick_verify("media", 60_000)
    assert checked.findings == [] and checked.bytes <= 60_000 < checked.total


@pytest.mark.parametrize("victim", ["*.wal", "MANIFEST-*"])
def test_logs_and_manifest_are_always_checked(lab, victim):
    path = min(Path("mydb").glob(victim))
    data = bytearray(path.read_bytes())
    data[4100 if victim == "*.wal" else 200] ^= 1
    path.write_bytes(data)
    outcome, text = page_of("mydb", "--verify", "10KiB")
    assert outcome.code == 1 and path.name in card(text)[1]


def test_damage_that_hides_the_tree_is_still_reported(lab):
    Path("mydb/CURRENT").write_bytes(b"nonsense")
    outcome, text = page_of("mydb")
    assert outcome.code == 1 and "CURRENT" in card(text)[1] and "lsmkv-tool repair" in text


def test_alarms_come_before_notes_and_after_damage(lab):
    _, text = page_of("damaged")
    kinds = re.findall(r'<li class="(\w+)">', text)
    assert set(kinds) >= {"bad", "warning"}
    assert kinds == sorted(kinds, key=("bad", "warning", "note").index)


def test_a_damaged_filter_is_named_beside_the_rates(lab):
    _, text = page_of("damaged")
    assert re.search(r"The filter of \d{6}\.sst is damaged", text)


def test_the_page_shows_keyspaces_value_logs_and_kinds_of_filters(lab):
    _, text = page_of("media", "--keyspace", "photos")
    assert "<h2>Keyspaces</h2>" in text and "sessions" in text
    assert "L0 fuse" in text and "Value logs" in text and "photo/000000.jpg" in text
    assert "Options of keyspace photos" in text


def test_an_empty_default_keyspace_gives_way_to_the_largest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lsmkv.open("db") as db:
        for name, n in (("small", 10), ("large", 1000)):
            keyspace = db.keyspace(name)
            for i in range(n):
                keyspace.put(b"%d" % i, b"value")
        db.flush()
    _, text = page_of("db")
    assert "Tree of keyspace large" in text


def test_few_heat_maps(lab):
    """An even filter is drawn once, as an example."""
    _, text = page_of("media")
    assert text.count("data:image/png;base64,") == 1 and "none stands out" in text


def test_report_of_an_empty_database(tmp_path):
    lsmkv.open(tmp_path / "db").close()
    assert tool("report", tmp_path / "db", "-o", tmp_path / "r.html").code == 0
    assert "No tables yet" in (tmp_path / "r.html").read_text()


def test_keys_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lsmkv.open("db") as db:
        db.put(b"<script>alert(1)</script>", b"1")
        db.put(b"`&\xff", b"2")
        db.flush()
    _, text = page_of("db")
    assert "<script>" not in text and "&lt;scr" in text


def test_report_beside_a_writer_has_no_false_damage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lsmkv.open("db", write_buffer_size=64 << 10, wal="write") as db:
        for round_ in range(3):
            for i in range(3000):
                db.put(b"%06d" % (i * 7919 % 3000), b"%d" % round_ * 20)
            outcome, text = page_of("db")
            assert (outcome.code, card(text)[0]) == (0, "good"), outcome.out


def test_the_verdict_tells_why_a_running_database_is_read_only():
    stats = {"alarms": [], "stalls": {"stop_seconds": 2.5}, "health": {"read_only": "no space", "last_error": None}}
    sample = stats_export.Sample(1, time.time(), stats)
    first, second = verdict.alarms([("", sample)])
    assert first.kind == "warning" and "takes no more writes: no space" in first.text
    assert "stopped for 2.5 s" in second.text
    del stats["health"]
    assert len(list(verdict.alarms([("", sample)]))) == 1
