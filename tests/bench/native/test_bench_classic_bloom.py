"""The filters of the probe benchmark answer at their false positive rates."""

from __future__ import annotations

import pytest

from lsmkv_bench.native.classic_bloom import BlockedFilter, ClassicFilter, Probes


def test_blocked_and_classic_filter_have_their_rates() -> None:
    probes = Probes(50_000, 5)
    blocked = BlockedFilter(64 << 10, 10_000, 1)
    assert blocked.batch_ns(probes) > 0
    assert probes.positives() / probes.n == pytest.approx(0.0097, rel=0.2)
    in_batch = probes.positives()
    blocked.single_ns(probes)
    assert probes.positives() == in_batch
    ClassicFilter(64 << 10, 7, 2).single_ns(probes)
    assert probes.positives() / probes.n == pytest.approx(2**-7, rel=0.2)
