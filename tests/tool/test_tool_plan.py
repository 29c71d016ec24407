"""`plan`."""

import pytest
from toolrunner import result, tool


def test_plan_beats_uniform_bits():
    found = result("plan", "--keys", "100M", "--absent", "1")
    assert found["average_bits_per_key"] == pytest.approx(10, abs=0.01)
    assert found["summed_fpr"] < found["same_memory_uniform"]["summed_fpr"] / 2
    memory = result("plan", "--keys", "100M", "--memory", "64MiB")
    assert memory["memory_bytes"] == pytest.approx(64 << 20, rel=0.01)
    quick = result("plan", "--keys", "100M", "--latency", "5us", "--read-cost", "100us")
    assert quick["wasted_microseconds_per_lookup"] <= 5
    hits = result("plan", "--keys", "100M", "--bits", "10", "--optimize-for-hits")
    assert hits["levels"][-1]["bits_per_key"] == 0 and hits["memory_given_back"] > hits["memory_bytes"]
    assert tool("plan", "--keys", "1M", "--memory", "1M", "--target-fpr", "0.1").code == 2
    assert tool("plan", "--keys", "1M", "--bits", "200").code == 2
