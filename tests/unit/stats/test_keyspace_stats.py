"""Statistics of databases with keyspaces: `stats()`, the STATS file, the prometheus collector."""

import json

import pytest

import lsmkv
from lsmkv.db import _export


@pytest.fixture
def db(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        yield db


def test_each_keyspace_has_its_own_stats(db):
    users = db.keyspace("users")
    for i in range(10):
        users.put(b"%d" % i, b"value")
    db.put(b"key", b"value")
    db.flush()
    users.get(b"1")
    assert (users.stats().total.entries, db.stats().total.entries) == (10, 1)
    assert (users.stats().reads.gets, db.stats().reads.gets) == (1, 0)


def exported(db):
    _export(db._scheduler)
    with open(f"{db.path}/STATS") as file:
        return json.load(file)


def test_the_export_has_the_named_keyspaces(db):
    db.keyspace("users").put(b"key", b"value")
    db.flush()
    body = exported(db)
    assert body["stats"]["total"]["entries"] == 0
    assert {name: stats["total"]["entries"] for name, stats in body["keyspaces"].items()} == {"users": 1}


def test_the_export_of_a_database_without_named_keyspaces_is_as_before(db):
    assert exported(db).keys() == {"pid", "time", "stats"}


@pytest.fixture
def scrape(db):
    prometheus_client = pytest.importorskip("prometheus_client")
    from lsmkv import prometheus

    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus.Collector(db))
    return lambda: prometheus_client.generate_latest(registry).decode()


def test_without_named_keyspaces_the_collector_has_no_such_label(scrape):
    assert "keyspace=" not in scrape()


def test_figures_of_one_keyspace_are_labelled(db, scrape):
    users = db.keyspace("users")
    users.put(b"key", b"value")
    db.flush()
    users.get(b"key")
    text = scrape()
    for keyspace, number in (("", 0), ("users", 1)):
        assert f'lsmkv_gets_total{{db="{db.path}",keyspace="{keyspace}"}} {number}.0' in text
        assert f'lsmkv_level_entries{{db="{db.path}",keyspace="{keyspace}",level="0"}} {number}.0' in text
    assert f'lsmkv_puts_total{{db="{db.path}"}} 1.0' in text
