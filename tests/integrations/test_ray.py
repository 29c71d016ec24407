"""Builds on a Ray cluster of three nodes, simulated on this machine; a worker is killed."""

import os
import signal

import pandas
import pyarrow
import pytest
import ray
import ray.data
from ray.cluster_utils import Cluster

import lsmkv
from lsmkv.integrations.ray import LsmkvDatasink, build_filter, merge_filters, where_in_filter, write_dataset

N = 20_000


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with pytest.MonkeyPatch.context() as patched:
        # The workers import this module.
        patched.setenv("PYTHONPATH", os.pathsep.join([os.environ.get("PYTHONPATH", ""), os.path.dirname(__file__)]))
        yield from started()


def started():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20})
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    assert len(ray.nodes()) == 3
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def staged(tmp_path):
    return [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]


def row(i):
    return {"user": b"%08d" % (i * 7919 % N), "name": b"%d" % i, "other": i}


def dataset():
    return ray.data.range(N, override_num_blocks=8).map(lambda each: row(each["id"]))


EXPECTED = {row(i)["user"]: row(i)["name"] for i in range(N)}


def write(data, db, tmp_path, **options):
    return write_dataset(data, db, str(tmp_path / "staging"), key="user", value="name", partitions=4, **options)


def test_a_dataset_becomes_a_database(path, tmp_path):
    with lsmkv.open(path) as db:
        assert write(dataset(), db, tmp_path) == N
        assert dict(db) == EXPECTED
    assert lsmkv.verify(path) and not staged(tmp_path)


def kill_once(marker, each):
    """Ends the worker at one row, the first time that it comes by."""
    if each["user"] == b"00000777" and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return each


def test_a_killed_worker_costs_no_row_and_no_duplicate(path, tmp_path):
    marker = str(tmp_path / "killed")
    data = dataset().materialize()
    points = [b"%08d" % (N * i // 4) for i in (1, 2, 3)]
    with lsmkv.open(path) as db:
        sink = LsmkvDatasink(db, str(tmp_path / "staging"), key="user", value="name", split_points=points)
        data.map(lambda each: kill_once(marker, each)).write_datasink(sink)
        assert sink.rows == N
        assert dict(db) == EXPECTED
        assert sum(table.entries for table in db.tables()) == N
    assert os.path.exists(marker) and not staged(tmp_path)


class KillOnce(LsmkvDatasink):
    """Ends the worker after it has staged its first tables: nobody gets the result."""

    def write(self, blocks, ctx):
        built = super().write(blocks, ctx)
        marker = os.path.join(self._writer.staging, "killed")
        if ctx.task_idx == 1 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return built


def test_what_a_killed_worker_has_staged_is_not_published(path, tmp_path):
    with lsmkv.open(path) as db:
        sink = KillOnce(db, str(tmp_path / "staging"), key="user", value="name", split_points=[b"00010000"])
        dataset().write_datasink(sink)
        assert sink.rows == N and dict(db) == EXPECTED
    assert [file.name for file in staged(tmp_path)] == ["killed"]


def test_of_equal_keys_one_stays(path, tmp_path):
    data = ray.data.range(1000, override_num_blocks=5)
    data = data.map(lambda each: {"user": b"%d" % (each["id"] % 10), "name": b"%d" % each["id"]})
    with lsmkv.open(path) as db:
        assert write(data, db, tmp_path) == 10
        assert {int(name) % 10 for name in dict(db).values()} == set(range(10))


def test_text_from_pandas_parquet_and_csv_into_keyspaces(path, tmp_path):
    frame = pandas.DataFrame({"user": [f"user{i:05d}" for i in range(3000)], "name": [f"n{i}" for i in range(3000)]})
    frame.to_parquet(tmp_path / "users.parquet")
    frame.to_csv(tmp_path / "users.csv", index=False)
    expected = {f"user{i:05d}".encode(): f"n{i}".encode() for i in range(3000)}
    sources = (
        ray.data.from_pandas(frame),
        ray.data.read_parquet(str(tmp_path / "users.parquet")),
        ray.data.read_csv(str(tmp_path / "users.csv")),
    )
    with lsmkv.open(path) as db:
        for number, source in enumerate(sources):
            users = db.keyspace(f"{number}")
            assert write(source, users, tmp_path) == 3000
            assert dict(users) == expected


def test_a_failed_job_leaves_nothing(path, tmp_path):
    data = dataset().map(lambda each: each if each["user"] != b"00000777" else 1 / 0)
    points = [b"00010000"]
    with lsmkv.open(path) as db:
        sink = LsmkvDatasink(db, str(tmp_path / "staging"), key="user", value="name", split_points=points)
        with pytest.raises(Exception, match="division by zero"):
            data.write_datasink(sink)
        assert dict(db) == {}
    assert not staged(tmp_path)


def test_a_filter_is_built_merged_and_sent_to_all_tasks():
    reference = build_filter(dataset(), "user", N, 0.01)
    whole = lsmkv.BlockedBloom(N, 0.01)
    whole.add_many(list(EXPECTED))
    assert ray.get(reference).digest()["fingerprint"] == whole.digest()["fingerprint"]
    others = ray.data.range(2 * N, override_num_blocks=4).map(lambda each: {"user": b"%08d" % each["id"]})
    kept = {each["user"] for each in where_in_filter(others, "user", reference).take_all()}
    dropped = {each["user"] for each in where_in_filter(others, "user", reference, present=False).take_all()}
    assert kept >= set(EXPECTED) and len(kept) < 1.05 * N
    assert len(kept) + len(dropped) == 2 * N and not kept & dropped


def test_filters_that_do_not_match_and_none_at_all():
    with pytest.raises(ValueError, match="no filters"):
        merge_filters([])
    with pytest.raises(ray.exceptions.RayTaskError):
        ray.get(merge_filters([lsmkv.BlockedBloom(100), lsmkv.BlockedBloom(1_000_000)]))
    empty = ray.data.from_arrow(pyarrow.table({"user": pyarrow.array([], pyarrow.binary())}))
    assert ray.get(build_filter(empty, "user", 10)).count == 0
