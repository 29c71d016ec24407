"""Counters never go back, and histograms count each event, in a database that flushes, compacts and rotates its log."""

import pytest
from databases import TINY, fill

import lsmkv
from lsmkv_ext.port.latency import BOUNDS

prometheus_client = pytest.importorskip("prometheus_client")

from lsmkv import prometheus  # noqa: E402


def samples(*databases):
    """The values of all counters and histogram buckets, by name and labels, and those of all gauges."""
    counters, gauges = {}, {}
    for family in prometheus.Collector(*databases).collect():
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            (gauges if family.type == "gauge" else counters)[key] = sample.value
    return counters, gauges


def value(found, name):
    (only,) = [value for (each, _), value in found.items() if each == name]
    return only


def test_counters_never_go_back(path):
    with lsmkv.open(path, **TINY) as db:
        db.put(b"a", b"b", sync=True)
        before, _ = samples(db)
        for step in range(6):
            fill(db, 200, prefix=b"%d" % (step % 2))
            db.put(b"synced", b"", sync=True)
            for i in range(300):
                db.get(b"absent%d" % i)
                db.get(b"0%06d" % i)
            if step == 3:
                db.compact_range()
            else:
                db.flush()
            now, _ = samples(db)
            assert {key: (before[key], now[key]) for key in before if now[key] < before[key]} == {}
            before = now
        assert value(now, "lsmkv_log_syncs_total") >= 7
        assert value(now, "lsmkv_log_sync_seconds_total") > 0


def test_syncs_of_removed_logs_count(db):
    for i in range(5):
        db.put(b"%d" % i, b"", sync=True)
    syncs = db.stats().log.syncs
    assert syncs >= 5
    db.flush()
    assert db.stats().log.syncs == syncs
    db.put(b"x", b"", sync=True)
    assert db.stats().log.syncs == syncs + 1


def test_reset_stats_resets_syncs(db):
    db.put(b"x", b"", sync=True)
    db.reset_stats()
    assert (db.stats().log.syncs, db.stats().log.sync_seconds) == (0, 0.0)
    assert sum(db.stats().latencies.sync.counts) == 0
    db.put(b"y", b"", sync=True)
    db.flush()
    assert db.stats().log.syncs == 1
    assert sum(db.stats().latencies.sync.counts) == 1


def test_histograms_count_each_event(db):
    for _ in range(3):
        fill(db, 50)
        db.put(b"x", b"", sync=True)
        db.flush()
    db.compact_range()
    stats = db.stats()
    assert sum(stats.latencies.flush.counts) == stats.flush.count == 3
    assert sum(stats.latencies.compaction.counts) == stats.compaction.count >= 1
    assert sum(stats.latencies.sync.counts) == stats.log.syncs
    assert stats.latencies.sync.seconds == stats.log.sync_seconds
    counters, _ = samples(db)
    assert value(counters, "lsmkv_flush_duration_seconds_count") == 3
    buckets = [n for (name, _), n in counters.items() if name == "lsmkv_flush_duration_seconds_bucket"]
    assert len(buckets) == len(BOUNDS) + 1 and max(buckets) == 3


def test_stops_are_in_the_histogram(path):
    with lsmkv.open(path, write_buffer_size=8192) as db:
        fill(db, 2000)
        db.flush()
        stats = db.stats()
        assert sum(stats.latencies.stop.counts) == db.background.stops > 0


def test_durations_fall_into_the_bucket_of_the_first_bound_not_below(db):
    counters = db._scheduler.counters
    counters.stopped(100_000)
    counters.stopped(100_001)
    counters.stopped(10**12)
    assert counters.stop_buckets == [1, 1, *[0] * (len(BOUNDS) - 2), 1]
    assert list(BOUNDS) == sorted(BOUNDS)


def test_health(db):
    _, gauges = samples(db)
    assert value(gauges, "lsmkv_up") == 1
    assert value(gauges, "lsmkv_read_only") == 0
    assert not [key for key in gauges if key[0] == "lsmkv_last_error"]
    db._scheduler.status.failed("flush", "flush", lsmkv.IOError(5, "broken", "disk"), 0.0)
    counters, gauges = samples(db)
    assert value(gauges, "lsmkv_read_only") == 1
    assert value(counters, "lsmkv_background_errors_total") == 1
    ((_, labels),) = [key for key in gauges if key[0] == "lsmkv_last_error"]
    assert "broken" in dict(labels)["error"]
    assert "broken" in db.stats().health.read_only


def test_a_closed_database_is_down(db, tmp_path):
    with lsmkv.open(tmp_path / "other") as other:
        db.close()
        counters, gauges = samples(db, other)
        up = {dict(labels)["db"]: up for (name, labels), up in gauges.items() if name == "lsmkv_up"}
        assert up == {db.path: 0, other.path: 1}
        assert {dict(labels)["db"] for _, labels in counters} == {other.path}
