"""`report`."""

import re
from pathlib import Path

from toolrunner import tool

import lsmkv


def test_report_is_self_contained(lab):
    assert tool("report", "mydb", "-o", "r.html").code == 0
    text = Path("r.html").read_text()
    assert text.count("<section>") >= 6 and text.count("data:image/png;base64,") > 5
    assert not re.search(r"(?:src|href)=(?![\"']data:)|https?://|@import|url\(", text)
    for title in ("Tree", "I/O saved", "False positive rate", "Filter heat", "Flushes and compactions"):
        assert title in text
    assert tool("report", "mydb", "-o", "r.html").code == 3
    assert tool("report", "mydb", "-o", "r.html", "--force").code == 0


def test_report_of_an_empty_database(tmp_path):
    lsmkv.open(tmp_path / "db").close()
    assert tool("report", tmp_path / "db", "-o", tmp_path / "r.html").code == 0
    assert "No tables yet" in (tmp_path / "r.html").read_text()
