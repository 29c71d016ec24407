"""Statistics as text and as HTML."""

from __future__ import annotations

import pytest

import lsmkv


@pytest.fixture
def stats(tmp_path):
    with lsmkv.open(tmp_path / "db", write_buffer_size=1 << 20, large_value_threshold=4096) as db:
        db.put(b"large", bytes(10_000))
        for i in range(20_000):
            db.put(b"%08d" % (i * 7 % 20_000), b"v" * 100)
        db.put(b"soon", b"gone", ttl=1000)
        db.flush()
        for i in range(3000):
            db.get(b"%08d" % i)
            db.get(b"%08d!" % i)
        db.compact_range()
        yield db.stats()


def test_text_has_80_columns_and_every_subject(stats):
    lines = str(stats).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:3] == ["level", "tables", "MiB"]
    total = next(line.split() for line in lines if line.split()[:1] == ["total"])
    assert total[1:4] == [str(stats.total.files), f"{stats.total.bytes / 2**20:,.1f}", f"{stats.total.entries:,}"]
    subjects = {line[:12].strip() for line in lines if not line.startswith(" ")}
    assert {
        "memtables",
        "reads",
        "filters",
        "block cache",
        "writes",
        "flushes",
        "compactions",
        "value logs",
    } <= subjects


def test_an_empty_database_says_little(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        lines = str(db.stats()).splitlines()
    assert lines[1].split()[:2] == ["total", "0"]
    assert lines[3:] == ["memtables   0 entries, 0.0 MiB; 0 to flush"]


def test_html_has_the_same_cells(stats):
    page = stats._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 2
    assert f"<td>{stats.total.entries:,}</td>" in page and "<th>level</th>" in page
