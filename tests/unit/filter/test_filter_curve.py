"""The expected false positive rate of 512-bit blocks, and the choice of k that follows from it."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.filter import curve

# what a correct kernel measures, within 5 % (bits per key -> rate)
EXPECTED = {5: 0.093, 6: 0.058, 8: 0.023, 10: 0.0096, 12: 0.00415, 14: 0.00184, 16: 0.00084, 20: 0.00021}


@pytest.mark.parametrize(("bits", "rate"), EXPECTED.items())
def test_curve_agrees_with_the_design_table(bits, rate):
    assert curve.designed_fpr(bits) == pytest.approx(rate, rel=0.05)


def exact_rate(n_keys, k):
    """One block of 512 bits, by inclusion and exclusion over the bits probed, in exact fractions."""
    throws = n_keys * k
    total = Fraction(0)
    ways = {0: Fraction(1)}
    for _ in range(k):
        following = {}
        for distinct, p in ways.items():
            following[distinct] = following.get(distinct, 0) + p * Fraction(distinct, 512)
            following[distinct + 1] = following.get(distinct + 1, 0) + p * Fraction(512 - distinct, 512)
        ways = following
    for distinct, p in ways.items():
        for i in range(distinct + 1):
            total += p * (-1) ** i * math.comb(distinct, i) * Fraction(512 - i, 512) ** throws
    return float(total)


@pytest.mark.parametrize(("n_keys", "k"), [(1, 1), (1, 6), (20, 3), (51, 6), (25, 10), (3, 16)])
def test_rate_of_one_block_is_exact(n_keys, k):
    assert curve.fpr_for(n_keys, 1, k) == pytest.approx(exact_rate(n_keys, k), rel=1e-9)


def test_many_blocks_approach_the_curve():
    for n_blocks in (100, 1000, 100_000):
        rate = curve.fpr_for(n_blocks * 512 // 10, n_blocks, 6)
        assert rate == pytest.approx(curve.designed_fpr(10), rel=0.02 if n_blocks < 1000 else 0.004)


def test_chosen_k_is_within_four_percent_of_the_best_k():
    for millibits in range(1000, 45_000, 370):
        bits = millibits / 1000
        best = min(curve.designed_fpr(bits, k) for k in range(1, 17))
        assert curve.designed_fpr(bits) <= 1.04 * best, bits


def test_ten_bits_take_six_probes_not_the_classic_seven():
    assert curve.k_for(10) == 6


@given(st.floats(0.1, 99), st.floats(0.001, 1))
def test_more_bits_never_mean_more_false_positives(bits, step):
    assert curve.designed_fpr(bits + step) <= curve.designed_fpr(bits)


@given(st.floats(1e-7, 1, exclude_max=True))
def test_bits_for_a_rate_reach_it_and_are_the_fewest(rate):
    bits = curve.bits_for_fpr(rate)
    assert curve.designed_fpr(bits) <= rate
    assert bits <= 0.001 or curve.designed_fpr(bits - 0.001) > rate


def test_ends_of_the_curve():
    assert curve.designed_fpr(0) == 1
    assert curve.bits_for_fpr(1) == 0
    assert curve.fpr_for(0, 5, 6) == 0
    assert curve.fpr_for(10, 0, 6) == 1
    assert curve.fpr_for(10**15, 10, 6) == 1


@pytest.mark.parametrize("rate", (0, -1, 1.5, math.nan, 1e-300))
def test_impossible_rates_are_refused(rate):
    with pytest.raises(ValueError, match=r"rate|reaches"):
        curve.bits_for_fpr(rate)


@pytest.mark.parametrize("bits", (-1, math.nan))
def test_impossible_bits_are_refused(bits):
    with pytest.raises(ValueError, match="bits_per_key"):
        curve.designed_fpr(bits)
    with pytest.raises(ValueError, match="bits_per_key"):
        curve.k_for(bits)


def test_block_counts_are_64_bit():
    """Geometry far beyond what fits here: no 32-bit step on the way."""
    assert curve.blocks_for(2**40, 10) == -(-(2**40 * 10) // 512)
    assert curve.blocks_for(1, 10) == 1
    assert curve.blocks_for(52, 10) == 2
    assert curve.blocks_for(2**63, 100) == 0  # would overflow: no filter rather than a wrong one
