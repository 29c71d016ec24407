"""The programs of the pages "Coming from ...".

The one for the other store runs on that store and prints what the one for lsmkv prints, and the copy has its records.
Skipped if the store is not installed. `test_docs_examples.py` runs the programs for lsmkv.
"""

from pathlib import Path

import pytest
from examples import ROOT, expected_output, programs, run

import lsmkv

PAGES = sorted((ROOT / "docs" / "migration").glob("*.md"))
COPIED = {
    "diskcache": {"visits": 3},
    "lmdb": {b"ada": b"70", b"bob": b"50"},
    "plyvel": {b"ada": b"3", b"grace": b"5"},
    "rocksdict": {b"ada": b"3", b"alan": b"4", b"grace": b"5"},
    "shelve": None,  # pickled
    "sqlitedict": {b"ada": b'{"born": 1815}', b"grace": b'{"born": 1906}'},
}


def copied():
    if Path("copy.cache").exists():
        with lsmkv.Cache("copy.cache", codec="json") as cache:
            return {key: cache[key] for key in cache}
    with lsmkv.open("copy.db", "r") as db:
        return dict(db)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_program_before_prints_what_the_one_after_does_and_its_data_are_copied(page, tmp_path, monkeypatch, capsys):
    pytest.importorskip(page.stem)
    monkeypatch.chdir(tmp_path)
    before, copy = programs(page, "py")
    run(before, f"{page.stem}, before")
    printed = capsys.readouterr().out.splitlines()
    assert printed
    assert printed == expected_output(before) == expected_output(programs(page, "python")[0])
    run(copy, f"{page.stem}, copy")
    if page.stem == "shelve":
        import shelve

        import lsmkv.dbm

        with shelve.Shelf(lsmkv.dbm.open("copy.db")) as shelf:
            assert dict(shelf) == {"ada": {"born": 1815}, "grace": {"born": 1906}}
    else:
        assert copied() == COPIED[page.stem]


def test_every_page_is_known():
    assert [page.stem for page in PAGES] == sorted(COPIED)
