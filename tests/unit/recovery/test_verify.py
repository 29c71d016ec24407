"""verify: every damage is found, and its file named."""

import os
import sys
from contextlib import contextmanager

import pytest
from damaged import flip, key
from databases import TINY

import lsmkv


def test_a_sound_database_has_no_findings(path):
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    seen = []
    report = lsmkv.verify(path, progress=lambda name, done, total: seen.append((done, total)))
    assert report and report.ok and report.findings == []
    assert report.entries > 1000
    assert seen[-1][0] == seen[-1][1] > 0
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before


@pytest.mark.parametrize("pattern", ["*.sst", "*.wal", "MANIFEST-*", "CURRENT", "OPTIONS", "SYNCED"])
def test_every_flipped_byte_is_found_and_its_file_named(path, pattern):
    victim = max(path.glob(pattern), key=lambda p: p.stat().st_size)
    good = victim.read_bytes()
    # Every byte of small files; of large ones a stride that meets every structure.
    stride = max(1, len(good) // 300) | 1
    for at in range(0, len(good), stride):
        flip(victim, at)
        report = lsmkv.verify(path)
        assert victim.name in {finding.file for finding in report.findings}, f"byte {at} of {victim.name}"
        victim.write_bytes(good)
    assert lsmkv.verify(path)


def test_missing_and_short_files_are_found(path):
    for pattern in ("*.sst", "*.wal", "MANIFEST-*", "CURRENT"):
        victim = next(path.glob(pattern))
        good = victim.read_bytes()
        victim.unlink()
        assert not lsmkv.verify(path)
        victim.write_bytes(good[:-1] if pattern != "*.wal" else good[:4500])
        assert not lsmkv.verify(path)
        victim.write_bytes(good)
    assert lsmkv.verify(path)


def test_a_database_in_use_has_no_findings(path):
    with lsmkv.open(path, **TINY) as db:
        for round_ in range(5):
            for i in range(300):
                db[key(i)] = b"%d" % round_ * 20
            assert lsmkv.verify(path).findings == []
        assert db.stats().total.files > 0
    with lsmkv.open(path, "r") as reader:
        assert reader.stats().total.files > 0
        assert reader.property("lsmkv.levels")
        assert reader.explain(key(1)).found


@contextmanager
def gone_after(calls, file):
    """While the block runs: moves `file` away before its `calls`-th call of the system. Yields the count."""
    count = [0]

    def step(frame, event, arg):
        if event == "c_call" and arg.__module__ == os.name:
            count[0] += 1
            if count[0] == calls:
                sys.setprofile(None)
                os.rename(file, file.with_name("away"))
                sys.setprofile(step)

    sys.setprofile(step)
    try:
        yield count
    finally:
        sys.setprofile(None)
        if not file.exists():
            os.rename(file.with_name("away"), file)


@pytest.mark.parametrize("pattern", ["*.sst", "*.wal", "MANIFEST-*", "CURRENT", "OPTIONS", "SYNCED"])
def test_verify_tolerates_a_file_that_is_removed_meanwhile(path, pattern):
    """A running database drops files at any moment. What verify makes of it is a finding, never an error."""
    victim = max(path.glob(pattern))
    with gone_after(-1, victim) as all_calls:
        assert lsmkv.verify(path)
    found = 0
    for calls in range(1, all_calls[0]):
        with gone_after(calls, victim):
            found += not lsmkv.verify(path)
    assert found or pattern in ("OPTIONS", "SYNCED")  # which a database can do without
    assert lsmkv.verify(path)


def test_no_database_is_a_finding(tmp_path):
    assert not lsmkv.verify(tmp_path / "nowhere")
