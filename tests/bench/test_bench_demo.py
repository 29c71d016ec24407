"""`make run` at a small size, and its report."""

from __future__ import annotations

import pytest

import lsmkv
from lsmkv_bench import demo
from lsmkv_bench.report.db_stats import engine_stats, filter_stats, level_stats


def test_demo_ends_with_the_filter_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "NUM", 20_000)
    monkeypatch.setattr(demo, "OPTIONS", {"write_buffer_size": 1 << 20, "block_cache_size": 1 << 20})
    assert demo.main() == 0
    out = capsys.readouterr().out
    assert "iterated over all 20,000 records in order" in out
    assert "10,000 operations" in out and "10,000 found" in out and "0 found" in out
    report = out[out.index("\nFilters\n") :]
    assert "observed" in report and "designed" in report and "bytes skipped" in report
    assert any(line.startswith("all ") for line in report.splitlines())


def test_demo_notices_a_lost_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "NUM", 1000)
    values = demo.ValueGenerator(1)
    records = [(b"%016d" % n, values.value(n, 1)) for n in range(1000)]

    class Items:
        def __init__(self, items: list[tuple[bytes, bytes]]) -> None:
            self.items = lambda: items

    demo.verify(Items(records), values)  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="999 came back"):
        demo.verify(Items(records[:-1]), values)  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="record 100 came back"):
        demo.verify(Items(records[:50] + records[51:]), values)  # type: ignore[arg-type]


def test_reports_show_the_counters(tmp_path: object) -> None:
    with lsmkv.open(str(tmp_path)) as db:
        for i in range(3000):
            db.put(b"%08d" % (2 * i), b"x")
        db.flush()
        for i in range(500):
            assert db.get(b"%08d" % (2 * i + 1)) is None
        stats = db.stats()
    total = next(line.split() for line in filter_stats(stats).splitlines() if line.startswith("all"))
    negatives, false_positives = int(total[5]), int(total[6])
    assert total[1:5] == ["1", "3,000", "500", "500"]
    assert negatives + false_positives == 500
    assert level_stats(stats).splitlines()[-1].split()[:2] == ["all", "1"]
    assert "puts 3,000" in engine_stats(stats)
