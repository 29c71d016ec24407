"""All models run with dead spans so small that nearly every scan records and uses some."""

import pytest

from lsmkv_ext.read import dead_spans

LEAST = 2  # dead entries that make a span


@pytest.fixture(autouse=True)
def small_dead_spans():
    before = dead_spans.set_least(LEAST)
    yield
    dead_spans.set_least(before)
