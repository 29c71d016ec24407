"""The histogram against sorted lists, and the measured loop against plain Python."""

from __future__ import annotations

import math
import threading
from array import array
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_bench.native.latency import Driver, Histogram, clock_name, timer_cost
from lsmkv_bench.native.workload import OPS

NANOS = st.lists(st.one_of(st.integers(0, 200), st.integers(0, 10**7), st.integers(0, 2**52)), min_size=1, max_size=300)
WIDTH = 1 / 32  # of the widest bucket, relative to its lower edge


def filled(values: list[int]) -> Histogram:
    hist = Histogram()
    for value in values:
        hist.record(value)
    return hist


@given(NANOS, st.floats(0, 100))
def test_percentile_is_exact_to_its_bucket(values: list[int], percent: float) -> None:
    exact = sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]
    got = filled(values).percentile(percent)
    assert abs(got - exact) <= exact * WIDTH + 1


@given(NANOS)
def test_extremes_count_and_mean_are_exact(values: list[int]) -> None:
    hist = filled(values)
    assert (hist.count, hist.min, hist.max) == (len(values), min(values), max(values))
    assert hist.mean == pytest.approx(sum(values) / len(values))
    assert hist.percentile(100) == max(values)
    assert sum(count for _, _, count in hist.buckets()) == len(values)
    for low, high, count in hist.buckets():
        assert count == sum(low <= value < high for value in values)


@given(NANOS, NANOS)
def test_merge_equals_one_histogram(left: list[int], right: list[int]) -> None:
    merged = filled(left)
    merged.merge(filled(right))
    assert merged.buckets() == filled(left + right).buckets()
    assert (merged.min, merged.max) == (min(left + right), max(left + right))


@given(NANOS)
def test_dict_round_trip(values: list[int]) -> None:
    hist = filled(values)
    again = Histogram.from_dict(hist.to_dict())
    assert again.to_dict() == hist.to_dict()
    assert again.percentile(99) == hist.percentile(99)


def test_wrong_count_is_rejected() -> None:
    data = filled([1, 2, 3]).to_dict()
    data["count"] = 4
    with pytest.raises(ValueError, match="buckets hold 3"):
        Histogram.from_dict(data)


def test_empty_histogram() -> None:
    hist = Histogram()
    assert (hist.count, hist.min, hist.max, hist.mean, hist.stddev, hist.percentile(50)) == (0, 0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="outside"):
        hist.percentile(101)


def test_above_counts_slow_operations() -> None:
    hist = filled([10, 20, 1 << 20, 1 << 21])
    many, spent = hist.above(1 << 20)
    assert many == 2
    assert spent == pytest.approx((1 << 20) + (1 << 21), rel=WIDTH)


def test_every_operation_calls_its_method() -> None:
    calls: list[tuple[str, object]] = []
    data = {b"a": b"1", b"b": b"2"}

    def get(key: bytes) -> bytes | None:
        calls.append(("get", key))
        return data.get(key)

    driver = Driver(
        get,
        lambda key, value: calls.append(("put", (key, value))),
        lambda key: calls.append(("delete", key)),
        lambda key: iter(sorted(data.items())),
        hist=Histogram(),
        check_every=1,
    )
    codes = bytes(OPS[name] for name in ("get", "put", "delete", "scan", "update", "get"))
    keys = [b"a", b"b", b"c", b"a", b"b", b"missing"]
    kept = driver.run(codes, keys, [b"v"] * 6, array("I", [1, 1, 1, 2, 1, 1]))
    assert calls == [
        ("get", b"a"),
        ("put", (b"b", b"v")),
        ("delete", b"c"),
        ("get", b"b"),
        ("put", (b"b", b"v")),
        ("get", b"missing"),
    ]
    assert [result for _, result in kept] == [b"1", None, None, [(b"a", b"1"), (b"b", b"2")], b"2", None]
    assert driver.ops == driver.hist.count == 6
    assert driver.found == 4  # one get, two scanned records, one update
    assert driver.ns > 0


def test_exceptions_propagate() -> None:
    def broken(key: bytes) -> bytes:
        raise KeyError(key)

    with pytest.raises(KeyError):
        Driver(broken).run(bytes(1), [b"x"])

    def bad() -> object:
        yield b"a", b"1"
        raise RuntimeError("disk gone")

    with pytest.raises(RuntimeError, match="disk gone"):
        Driver().iterate(bad(), 10)


def test_different_lengths_are_rejected() -> None:
    driver = Driver({}.get)
    with pytest.raises(ValueError, match="differ"):
        driver.run(bytes(2), [b"x"])
    with pytest.raises(ValueError, match="differ"):
        driver.run(bytes(1), [b"x"], [])
    with pytest.raises(ValueError, match="differ"):
        driver.run(bytes(1), [b"x"], None, array("I"))


def test_iterate_stops_at_the_limit_and_at_the_end() -> None:
    driver = Driver(check_every=2)
    iterator = iter([(b"a", b"1"), (b"b", b"22"), (b"c", b"333")])
    assert driver.iterate(iterator, 2) == (2, [(0, (b"a", b"1"))])
    assert driver.iterate(iterator, 5) == (1, [(0, (b"c", b"333"))])
    assert driver.bytes_read == 3 + 6


def test_each_counts_calls_by_weight() -> None:
    driver = Driver(hist=Histogram(), check_every=4)
    kept = driver.each(len, [[1, 2], [3, 4], [5, 6]], 2)
    assert driver.ops == 6
    assert driver.hist.count == 3
    assert [i for i, _ in kept] == [0, 2]


def test_loop_offers_the_gil() -> None:
    """The loop runs in C alone, and ends only when this thread gets the GIL."""
    box = [b"x"]
    ended = []

    def run() -> None:
        driver = Driver(threaded=True)
        with pytest.raises(ValueError):
            driver.iterate(iter(partial(box.index, b"x"), None), 1 << 62)
        ended.append(driver)

    thread = threading.Thread(target=run)
    thread.start()
    box.clear()
    thread.join()
    assert len(ended) == 1


def test_timer_cost_is_small() -> None:
    assert 0 <= timer_cost(20000) < 100000
    assert clock_name() in ("tsc", "clock_monotonic")
