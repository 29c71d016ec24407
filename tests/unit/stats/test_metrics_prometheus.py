"""The prometheus collector, through a real registry and its text format."""

import pytest
from test_metrics import COUNTERS, TREE

prometheus_client = pytest.importorskip("prometheus_client")

from lsmkv import prometheus  # noqa: E402
from lsmkv.stats.metrics import make_stats  # noqa: E402


class Fixed:
    path = "some/db"

    def stats(self):
        return make_stats(COUNTERS, TREE)


@pytest.fixture
def text():
    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus.Collector(Fixed()))
    return prometheus_client.generate_latest(registry).decode()


def test_levels_and_totals_are_exposed(text):
    assert 'lsmkv_filter_negatives_total{db="some/db",level="0"} 3960.0' in text
    assert 'lsmkv_filter_fail_open_total{db="some/db",level="1"} 100.0' in text
    assert 'lsmkv_gets_total{db="some/db"} 1500.0' in text
    assert 'lsmkv_alarm{db="some/db",level="1",name="filter_damaged"} 1.0' in text


def test_unknown_figures_are_left_out(text):
    assert 'lsmkv_filter_observed_fpr{db="some/db",level="0"}' in text
    assert 'lsmkv_filter_observed_fpr{db="some/db",level="1"}' not in text


def test_every_exposed_name_is_listed_once(text):
    kinds = [line for line in text.splitlines() if line.startswith("# TYPE")]
    exposed = {line.split()[2].removesuffix("_total") for line in kinds}
    assert exposed == set(prometheus.NAMES)
    assert len(prometheus.NAMES) == len(set(prometheus.NAMES))


def test_registering_reads_nothing():
    class Unreadable:
        path = "x"

        def stats(self):
            raise AssertionError("read while registering")

    prometheus_client.CollectorRegistry().register(prometheus.Collector(Unreadable()))
