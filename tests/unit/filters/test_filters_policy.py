"""The filter policy, from small texts."""

import re

import pytest

from lsmkv.filters.planner import LevelShape, designed_fpr, memory_bytes, summed_fpr
from lsmkv.filters.policy import (
    FilterPolicy,
    FilterState,
    LevelLoad,
    debt_ratio,
    debts,
    is_bottommost,
    observe,
)
from lsmkv.options import MAX_LEVELS, Options
from lsmkv.version.version import TableMeta, Version

LOAD = re.compile(r"L(\d): (\d+)k?(?: x(\d+))?(?: reach=([\d.]+))?(?: wasted=([\d.]+))?\Z")


def loads(text):
    """Lines such as `L0: 200 x4 reach=3.9 wasted=3.8`: thousands of entries, runs, probes per lookup."""
    found = [LevelLoad()] * MAX_LEVELS
    for line in text.strip().splitlines():
        match = LOAD.match(line.strip())
        assert match, line
        level, entries, runs, reach, wasted = match.groups()
        found[int(level)] = LevelLoad(
            int(entries) * 1000,
            int(runs or 1),
            None if reach is None else float(reach),
            None if wasted is None else float(wasted),
        )
    return found


TREE = """
    L0: 200 x4
    L1: 50
    L2: 500
    L3: 5000
"""


def policy(text=TREE, **options):
    return FilterPolicy.of(Options(**options), loads(text))


def file(number, keys, *, entries=100, bits=10.0):
    return TableMeta(
        number=number,
        size=10_000,
        entries=entries,
        smallest=keys[0].encode(),
        largest=keys[-1].encode(),
        max_seq=number,
        filter_bytes=int(entries * bits / 8),
        filter_keys=entries,
        millibits=int(bits * 1000),
    )


def version(*levels):
    return Version(tuple(tuple(levels[i]) if i < len(levels) else () for i in range(MAX_LEVELS)))


# --- bits per level ---


def test_a_number_holds_everywhere():
    assert policy(bits_per_key=12.5).bits == (12.5,) * MAX_LEVELS
    assert policy(bits_per_key=12.5).millibits_for(3) == 12_500
    assert policy(bits_per_key=0).bits == (0,) * MAX_LEVELS


def test_the_last_entry_of_a_list_continues():
    assert policy(bits_per_key=[16, 12, 8]).bits == (16, 12, 8, 8, 8, 8, 8)


def test_a_target_rate_is_another_way_to_say_it():
    found = policy(target_fpr=0.01)
    assert designed_fpr(found.bits_for(2)) <= 0.01
    assert found.bits_for(2) == pytest.approx(9.92, abs=0.05)
    assert policy(target_fpr=0.01, bits_per_key=0).bits_for(1) == 0


def shapes(text):
    return [LevelShape(load.entries, load.runs) for load in loads(text)]


def test_auto_spends_ten_bits_on_average_at_half_the_summed_rate_or_less():
    found = policy(bits_per_key="auto")
    assert memory_bytes(shapes(TREE), found.bits) == pytest.approx(5_750_000 * 10 / 8, rel=1e-3)
    assert summed_fpr(shapes(TREE), found.bits) < 0.5 * summed_fpr(shapes(TREE), [10.0] * MAX_LEVELS)
    assert found.bits_for(1) > found.bits_for(2) > found.bits_for(3)


def test_auto_within_a_memory_budget_or_a_summed_rate():
    budget = policy(bits_per_key="auto", filter_memory=4_000_000)
    assert memory_bytes(shapes(TREE), budget.bits) == pytest.approx(4_000_000, rel=1e-3)
    assert policy(filter_memory=4_000_000) == budget
    rate = policy(bits_per_key="auto", target_fpr=0.02)
    assert summed_fpr(shapes(TREE), rate.bits) <= 0.02


def test_auto_in_an_empty_tree_has_bits_for_every_level():
    found = policy("", bits_per_key="auto")
    assert all(bits > 5 for bits in found.bits)


def test_auto_follows_where_lookups_go():
    deep = policy("L1: 500\nL2: 5000", bits_per_key="auto")
    shallow = policy("L1: 500 reach=1.0 wasted=1.0\nL2: 5000 reach=0.05 wasted=0.05", bits_per_key="auto")
    assert shallow.bits_for(2) < deep.bits_for(2) - 0.5
    assert shallow.bits_for(1) > deep.bits_for(1) + 0.5


# --- optimize_filters_for_hits ---


def test_for_hits_drops_only_bottommost_output():
    found = policy(optimize_filters_for_hits=True)
    assert found.millibits_for(3, bottommost=True) == 0
    assert found.millibits_for(1, bottommost=True) == 0
    assert found.millibits_for(3) == found.millibits_for(0) == 10_000


def test_for_hits_with_auto_spends_the_budget_above_the_bottom():
    found = policy(bits_per_key="auto", optimize_filters_for_hits=True, filter_memory=1_000_000)
    assert found.millibits_for(3, bottommost=True) == 0
    above = shapes(TREE)[:3]
    assert memory_bytes(above, found.bits[:3]) == pytest.approx(1_000_000, rel=0.01)


@pytest.mark.parametrize(("wasted", "low", "high"), [(1.0, 10, 10), (0.5, 8, 9), (0.1, 4.5, 5.5), (0.005, 0, 0)])
def test_auto_for_hits_gives_the_bottom_what_its_misses_deserve(wasted, low, high):
    found = policy(f"L1: 500\nL2: 5000 reach=1.0 wasted={wasted}", optimize_filters_for_hits="auto")
    assert low <= found.bits_for(2, bottommost=True) <= high
    assert found.bits_for(1) == 10


def test_auto_for_hits_keeps_the_filter_until_something_was_measured():
    assert policy(optimize_filters_for_hits="auto").bits_for(3, bottommost=True) == 10


# --- what lookups were seen to do ---


def counters(**changes):
    level = {"checks": 10_000, "true_positives": 0}
    bottom = {"checks": 0, "unfiltered": 10_000}
    return {"gets": 10_000, "gets_found": 9_000, "levels": [{}, level, bottom], **changes}


def test_observed_loads_come_from_the_tree_and_the_counters():
    tree = version([file(9, "az", entries=500)], [file(1, "ak")], [file(2, "am", entries=900)])
    found = observe(tree, Options(l0_compaction_trigger=4), counters())
    assert found[0].runs == 4 and found[0].entries == 2000
    assert (found[1].entries, found[2].entries) == (100, 900)
    assert found[1].wasted_probes == pytest.approx(1.0)
    assert found[2].reach == pytest.approx(1.0)
    assert found[2].wasted_probes == pytest.approx((1000 + 1000) / 11_000)


def test_a_few_reads_say_nothing():
    found = observe(version(), Options(), counters(gets=999))
    assert all(load.reach is None and load.wasted_probes is None for load in found)
    assert observe(version(), Options())[0].entries > 0


# --- debt ---


def test_bottommost_is_about_the_key_range():
    upper, lower = file(2, "ac"), file(3, "mz")
    tree = version([], [file(1, "bd"), file(4, "ko")], [upper, lower])
    assert is_bottommost(tree, 2, upper)
    assert not is_bottommost(tree, 1, tree.levels[1][0])
    assert is_bottommost(version([], [file(1, "bd")], [lower]), 1, file(1, "bd"))
    assert not is_bottommost(version([file(1, "bd")]), 0, file(1, "bd"))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (FilterState(10_000), None),
        (FilterState(10_200), None),
        (FilterState(12_000), "bits"),
        (FilterState(6_000), "bits"),
        (FilterState(0, "absent"), "absent"),
        (FilterState(10_000, "bad checksum"), "damaged"),
        (FilterState(10_000, seed=5), None),
        (FilterState(10_000, seed=6), "seed"),
        (FilterState(10_000, prefix=(1, 4)), "prefix"),
        (FilterState(10_000, prefix=(0, 0)), None),
    ],
)
def test_debt_of_one_table(state, reason):
    assert policy().debt(state, 2, bottommost=False, seed=5) == reason


def test_debt_where_no_filter_is_wanted():
    found = policy(optimize_filters_for_hits=True)
    assert found.debt(FilterState(10_000), 3, bottommost=True) == "unwanted"
    assert found.debt(FilterState(0, "absent"), 3, bottommost=True) is None
    assert found.debt(FilterState(10_000, "bad checksum"), 3, bottommost=True) is None
    assert found.debt(FilterState(10_000), 0, bottommost=True) is None, "a flush keeps its filter"


def test_solved_bits_are_compared_loosely():
    found = policy(bits_per_key="auto")
    wanted = found.millibits_for(3)
    assert found.debt(FilterState(wanted + 200), 3, bottommost=False) is None
    assert found.debt(FilterState(wanted + 900), 3, bottommost=False) == "bits"


def test_debts_of_a_tree():
    upper = [file(1, "ak", bits=6.0), file(2, "lz", bits=0.0)]
    tree = version([file(9, "az")], upper, [file(3, "am", entries=700)])
    owed = debts(tree, policy())
    assert owed == {1: "bits", 2: "absent"}
    assert debt_ratio(tree, owed) == pytest.approx(200 / 1000)
    info = {"problem": "bad length", "millibits": 10_000, "seed": 5, "prefix_kind": 0, "prefix_arg": 0}
    assert debts(tree, policy(), {9: info})[9] == "damaged"
    assert debts(tree, policy(), {9: info | {"problem": "ok"}}, seed=4)[9] == "seed"
    assert debt_ratio(version(), {}) == 0
