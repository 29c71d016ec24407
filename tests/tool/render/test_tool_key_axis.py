"""Keys on an axis, and spans drawn over it."""

import pytest

from lsmkv_tool.render.key_axis import KeyAxis, draw_spans


def test_keys_spread_evenly_in_order():
    axis = KeyAxis([b"user:00000", b"user:99999"])
    places = [axis(b"user:%05d" % i) for i in range(0, 100000, 5000)]
    assert places == sorted(places) and places[0] == 0.0
    assert places[10] == pytest.approx(0.5, abs=0.03)


def test_an_axis_with_one_bound_or_none():
    assert KeyAxis([b"a"])(b"a") == 0.0
    assert KeyAxis([])(b"a") == 0.0


def test_overlapping_spans_are_counted():
    assert draw_spans([(0.0, 0.5), (0.5, 1.0)], 8) == "####===="
    assert draw_spans([(0.0, 1.0), (0.0, 0.5)], 4) in ("22##", "22==")
