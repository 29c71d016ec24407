"""The OpenTelemetry example of docs/monitoring.md."""

import re
from pathlib import Path

import pytest

import lsmkv

pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"


def test_the_example_exports(db):
    (example,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(example, PAGE.name, "exec"), names)
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    names["export"](db, provider.get_meter("test"))
    db.put(b"ada", b"1815")
    db.put(b"bob", b"1900", sync=True)
    db.flush()
    db.get(b"ada")
    db._scheduler.status.events._thread.join()
    (resource,) = reader.get_metrics_data().resource_metrics
    metrics = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    (puts,) = metrics["lsmkv.puts"].data.data_points
    assert (puts.value, puts.attributes["db"]) == (2, db.path)
    (syncs,) = metrics["lsmkv.log.syncs"].data.data_points
    assert syncs.value == 1
    (flushes,) = metrics["lsmkv.flush.duration"].data.data_points
    assert flushes.count == 1
    (read_only,) = metrics["lsmkv.read_only"].data.data_points
    assert read_only.value == 0
    provider.shutdown()
    assert isinstance(db, lsmkv.DB)
