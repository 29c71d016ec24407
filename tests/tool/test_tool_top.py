"""`top`."""

from toolrunner import tool

import lsmkv


def test_top_without_statistics_says_how_to_export_them(tmp_path):
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
