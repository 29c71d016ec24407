"""The alarm for a false positive rate above the design: how often healthy filters ring, and how soon raised ones do."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv.stats.evidence import ENOUGH, evidence_of_excess, wilson
from lsmkv.stats.metrics import FPR_FACTOR, make_stats

# From there on a healthy filter never rings, but for one in 10^16.
HOPELESS = -30.0


def rings(hits, lookups, rate):
    return hits > FPR_FACTOR * lookups * rate and evidence_of_excess(hits, lookups * rate) >= ENOUGH


def first_ring(draw, rate, times, lookups):
    """The lookup at which the alarm rings, or None. The evidence grows only at false positives."""
    gap = 1 / math.log1p(-rate * times)
    done = hits = 0
    while True:
        done += 1 + int(math.log(1.0 - draw()) * gap)
        hits += 1
        if done > lookups or evidence_of_excess(hits, done * rate) < HOPELESS:
            return None
        if rings(hits, done, rate):
            return done


def rings_of(rate, times, lookups, runs):
    draw = random.Random(f"{rate} {times}").random
    found = (first_ring(draw, rate, times, lookups) for _ in range(runs))
    return [ring for ring in found if ring is not None]


@pytest.mark.parametrize("rate", [0.00005, 0.0002, 0.001, 0.01, 0.15])
@pytest.mark.parametrize("times", [0.9, 1.0])
def test_healthy_filters_ring_in_less_than_one_of_a_thousand_runs(rate, times):
    assert len(rings_of(rate, times, 1_000_000, 6000)) < 6


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.15])
def test_three_times_the_rate_rings_within_50_000_lookups(rate):
    assert len(rings_of(rate, 3, 50_000, 1000)) == 1000


@pytest.mark.parametrize("rate", [0.0002, 0.00005])
def test_three_times_a_tiny_rate_rings_after_thirty_false_positives(rate):
    """Ten expected false positives are too few for certainty: the best test of this strength misses one run in ten."""
    assert len(rings_of(rate, 3, 10 / rate, 1000)) > 800
    assert len(rings_of(rate, 3, 50 / rate, 1000)) == 1000


def test_present_keys_are_no_evidence():
    level = {"negatives": 97, "false_positives": 3, "designed_fpr_sum": 1.0}
    for present in (0, 1_000_000):
        checks = {"true_positives": present, "positives": present + 3, "checks": present + 100}
        found = make_stats({"levels": [level | checks]}).alarms
        assert [alarm.name for alarm in found if alarm.name == "filter_fpr"] == []


@given(st.integers(0, 200), st.integers(1, 10**6), st.sampled_from([0.0002, 0.01, 0.15]))
def test_the_alarm_rings_by_this_rule(hits, negatives, rate):
    absent = hits + negatives
    level = {"negatives": negatives, "false_positives": hits, "checks": absent, "designed_fpr_sum": absent * rate}
    rung = any(alarm.name == "filter_fpr" for alarm in make_stats({"levels": [level]}).alarms)
    assert rung == rings(hits, absent, level["designed_fpr_sum"] / absent)


@given(st.integers(0, 10**6), st.floats(0, 1e6))
def test_evidence_means_more_than_the_tolerated_rate(hits, expected):
    assert evidence_of_excess(hits, expected) <= hits * math.log(3 / 1.1)
    assert evidence_of_excess(hits, expected) <= 0 or hits > 1.89 * expected


def test_wilson_agrees_with_worked_values():
    low, high = wilson(10, 1000)
    assert (low, high) == pytest.approx((0.005442, 0.018309), abs=2e-6)
    assert wilson(0, 0) == (0, 1)
    assert wilson(0, 100)[1] == pytest.approx(0.036995, abs=1e-5)


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_wilson_holds_the_observed_rate(trials, share):
    hits = int(trials * share)
    low, high = wilson(hits, trials)
    assert 0 <= low <= hits / trials <= high <= 1
    assert not math.isnan(low + high)
