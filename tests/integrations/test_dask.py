"""Builds on a real Dask cluster of processes, one of which is killed."""

import os
import signal

import dask
import dask.bag
import dask.dataframe
import pandas
import pytest
from dask.distributed import Client, LocalCluster, get_worker
from waiting import wait_until

import lsmkv
from lsmkv.integrations.dask import build_filter, merge_filters, where_in_filter, write_bag, write_dataframe


@pytest.fixture
def client():
    with (
        dask.config.set({"dataframe.convert-string": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def staged(tmp_path):
    return [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]


def pairs(n, parts):
    return dask.bag.range(n, npartitions=parts).map(lambda i: (b"%08d" % (i * 7919 % n), b"%d" % i))


def test_a_bag_becomes_a_database(client, path, tmp_path):
    with lsmkv.open(path) as db:
        assert write_bag(pairs(20_000, 8), db, tmp_path / "staging", partitions=4) == 20_000
        assert dict(db) == {b"%08d" % (i * 7919 % 20_000): b"%d" % i for i in range(20_000)}
    assert lsmkv.verify(path) and not staged(tmp_path)


def test_of_equal_keys_the_last_counts(client, path, tmp_path):
    bag = dask.bag.from_sequence([(b"%d" % (i % 10), b"%d" % i) for i in range(1000)], npartitions=5)
    with lsmkv.open(path) as db:
        write_bag(bag, db, tmp_path / "staging")
        assert dict(db) == {b"%d" % (i % 10): b"%d" % i for i in range(990, 1000)}


def test_dataframes_from_memory_parquet_and_csv(client, path, tmp_path):
    frame = pandas.DataFrame({"user": [f"user{i:05d}" for i in range(5000)], "name": [f"n{i}" for i in range(5000)]})
    parts = dask.dataframe.from_pandas(frame, npartitions=3)
    parts.to_parquet(tmp_path / "parquet")
    frame.to_csv(tmp_path / "users.csv", index=False)
    expected = {f"user{i:05d}".encode(): f"n{i}".encode() for i in range(5000)}
    sources = parts, dask.dataframe.read_parquet(tmp_path / "parquet"), dask.dataframe.read_csv(tmp_path / "users.csv")
    with lsmkv.open(path) as db:
        for number, source in enumerate(sources):
            users = db.keyspace(f"{number}")
            assert write_dataframe(source, users, tmp_path / "staging", key="user", value="name") == 5000
            assert dict(users) == expected


def kill_once(marker, row):
    """Ends the worker at one row, the first time that it comes by."""
    if row[0] == b"00000777" and not os.path.exists(marker):
        open(marker, "w").close()
        get_worker()
        os.kill(os.getpid(), signal.SIGKILL)
    return row


def test_a_killed_worker_costs_no_row_and_no_duplicate(client, path, tmp_path, monkeypatch):
    marker = str(tmp_path / "killed")
    bag = pairs(20_000, 8).map(lambda row: kill_once(marker, row))
    with lsmkv.open(path) as db:
        assert write_bag(bag, db, tmp_path / "staging", partitions=4) == 20_000
        assert dict(db) == {b"%08d" % (i * 7919 % 20_000): b"%d" % i for i in range(20_000)}
    assert os.path.exists(marker) and not staged(tmp_path)


def fail_late(marker, staging, row):
    """Raises at one row, not while keys are sampled, but once other workers have staged tables."""
    if row[0] == b"00000777":
        if os.path.exists(marker):
            wait_until(lambda: any(staging.rglob("*.sst")))
            raise ZeroDivisionError
        open(marker, "w").close()
    return row


def test_a_failed_job_leaves_nothing(client, path, tmp_path):
    bag = pairs(1000, 4).map(lambda row: fail_late(str(tmp_path / "sampled"), tmp_path / "staging", row))
    with lsmkv.open(path) as db:
        with pytest.raises(ZeroDivisionError):
            write_bag(bag, db, tmp_path / "staging")
        assert dict(db) == {}
    assert not staged(tmp_path)


def test_what_a_bag_cannot_hold(client, path, tmp_path):
    with lsmkv.open(path) as db:
        for wrong in ([(1, b"1")], [(b"a", None), (b"b", b"1")]):
            with pytest.raises((TypeError, ValueError)):
                write_bag(dask.bag.from_sequence(wrong), db, tmp_path / "staging")
        empty = dask.bag.from_sequence([(b"a", b"1")], npartitions=1).filter(lambda row: False)
        assert write_bag(empty, db, tmp_path / "staging") == 0
        assert dict(db) == {}


def test_a_filter_is_built_merged_and_sent_to_all_workers(client):
    keys = dask.bag.range(20_000, npartitions=20).map(lambda i: b"%d" % i)
    whole = lsmkv.BlockedBloom(20_000, 0.01)
    whole.add_many(b"%d" % i for i in range(20_000))
    delayed = build_filter(keys, 20_000, 0.01)
    known = delayed.compute()
    assert known.digest()["fingerprint"] == whole.digest()["fingerprint"]
    others = dask.bag.range(40_000, npartitions=4).map(lambda i: (i, b"%d" % i))
    everywhere = client.scatter(known, broadcast=True)
    assert len(client.who_has(everywhere)[everywhere.key]) == 2
    for bloom in (known, delayed, everywhere):
        kept, dropped = (
            set(where_in_filter(others, bloom, key=lambda pair: pair[1], present=present).compute())
            for present in (True, False)
        )
        assert {i for i, _ in kept} >= set(range(20_000)) and len(kept) < 21_000
        assert len(kept) + len(dropped) == 40_000 and not kept & dropped


def test_filters_that_do_not_match_and_none_at_all(client):
    with pytest.raises(ValueError, match="no filters"):
        merge_filters([])
    with pytest.raises(ValueError):
        merge_filters([lsmkv.BlockedBloom(100), lsmkv.BlockedBloom(1_000_000)]).compute()
