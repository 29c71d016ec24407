"""Workers of Faust on the mock broker of librdkafka, killed with -9."""

import asyncio
import queue
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import faust
import pytest
from confluent_kafka import Producer
from faust.exceptions import ImproperlyConfigured
from faust.types import TP as TopicPartition
from waiting import wait_until

import lsmkv

WORKER = Path(__file__).with_name("faust_worker.py")
WAIT = 60  # seconds until a test gives up
KEYS = [b"ant", b"bee", b"cow", b"dog", b"elk", b"fox"]


class Broker:
    def __init__(self, changelog="words-counts-changelog"):
        self.producer = Producer({"bootstrap.servers": "unused:1", "test.mock.num.brokers": 1, "linger.ms": 0})
        (self.address,) = [f"{b.host}:{b.port}" for b in self.producer.list_topics(timeout=10).brokers.values()]
        for topic in ("words", changelog):  # asked for, they appear
            assert len(self.producer.list_topics(topic, timeout=10).topics[topic].partitions) == 4

    def send(self, *messages):
        """A key goes to a partition of its own choice."""
        for key, value in messages:
            self.producer.produce("words", value, key, partition=KEYS.index(key) % 4)
        assert self.producer.flush(WAIT) == 0

    def wait(self, done, process):
        """Waits until `done()`, as long as the process runs. The broker needs no turn: it has threads of its own."""
        wait_until(lambda: done() or process.poll() is not None, WAIT)
        assert done()


@pytest.fixture
def broker():
    return Broker()


class Worker:
    """A process, and the lines that it prints."""

    def __init__(self, broker, datadir):
        command = [sys.executable, WORKER, broker.address, datadir, "worker", "--loglevel=warn", "--without-web"]
        self.log = Path(f"{datadir}.log")
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.lines = queue.Queue()
        self.seen = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            # Faust begins lines of its own, which it ends later.
            _, ours, words = line.partition("## ")
            if ours:
                self.lines.put(words.split())
        self.lines.put(None)

    def wait_for(self, done):
        """The first line from now on with which `done` is true."""
        while True:
            line = self.lines.get(timeout=WAIT)
            assert line is not None, self.log.read_text()
            self.seen.append(line)
            if done(line):
                return line

    def persisted(self, changes):
        """Waits until so many changes are on the disk, over all partitions."""
        offsets = {}

        def done(line):
            if line[0] == "persisted":
                offsets[line[1]] = int(line[2]) + 1
            return sum(offsets.values()) >= changes

        self.wait_for(done)

    def kill(self):
        self.process.kill()
        self.end()

    def stop(self):
        self.process.terminate()
        self.end()

    def end(self):
        self.process.wait(WAIT)
        self.thread.join(WAIT)
        self.process.stdout.close()

    def replayed(self):
        return sum(line[0] == "replayed" for line in self.seen)

    def show(self, broker):
        """The table, as the worker sees it."""
        for key in KEYS[:4]:  # one of each partition: all earlier events are behind it
            broker.send((key, b"show"))
            self.wait_for(lambda line, key=key: line[:2] == ["shown", key.decode()])
        broker.send((KEYS[0], b"all"))
        shown = self.wait_for(lambda line: line[0] == "all")[1:]
        return {key.encode(): int(value) for key, value in (pair.split("=") for pair in shown)}


@pytest.fixture
def start(broker, tmp_path):
    workers = []

    def start(name="data"):
        workers.append(Worker(broker, tmp_path / name))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.kill()


def sent(n, start=0):
    return [(KEYS[i % len(KEYS)], b"seen") for i in range(start, start + n)]


def counted(messages):
    return dict(Counter(key for key, _ in messages))


def databases(tmp_path, name="data"):
    return sorted((tmp_path / name).rglob("counts-*.lsmkv"))


def stored(tmp_path, name="data"):
    """What is on the disk, and the offsets."""
    found, offsets = {}, []
    for path in databases(tmp_path, name):
        with lsmkv.open(path, "r") as db:
            found |= {key: int(value) for key, value in db.items()}
            offsets.append(int(db.keyspace("offsets", create=False)[b"offset"]))
    return found, offsets


def test_a_restart_after_a_kill_replays_nothing(broker, start, tmp_path):
    messages = sent(600)
    broker.send(*messages)
    worker = start()
    worker.persisted(600)
    worker.kill()
    found, offsets = stored(tmp_path)
    assert found == counted(messages) and sum(offset + 1 for offset in offsets) == 600
    worker = start()
    more = sent(60, 600)
    broker.send(*more)
    worker.persisted(1)
    assert worker.replayed() == 0
    worker.stop()


def test_an_empty_disk_is_rebuilt_from_the_changelog(broker, start, tmp_path):
    messages = sent(600)
    broker.send(*messages, (b"fox", b"forget"))
    worker = start()
    worker.persisted(601)
    expected = {key: n for key, n in counted(messages).items() if key != b"fox"}
    worker.kill()
    worker = start("other")
    assert worker.show(broker).keys() == expected.keys()
    assert worker.replayed() == 601
    worker.stop()
    rebuilt = stored(tmp_path, "other")[0]
    assert rebuilt.keys() == expected.keys()


def test_data_and_offset_agree_whenever_a_worker_is_killed(broker, start, tmp_path):
    """The worker kills itself between the change of the table and its confirmation."""
    messages = sent(60)
    for round_ in range(3):
        broker.send(*messages, (KEYS[round_], b"die-%d" % round_))
        worker = start()
        worker.process.wait(WAIT)
        worker.end()
    worker = start()
    found = worker.show(broker)
    worker.stop()
    # At least once: an event whose offset was not committed is repeated, but none is lost.
    assert all(found[key] >= 3 * n for key, n in counted(messages).items())
    # Another disk gets the same from the changelog.
    other = start("other")
    rebuilt = other.show(broker)
    other.stop()
    assert all(rebuilt[key] >= found[key] for key in found)
    assert stored(tmp_path)[0].keys() == found.keys()


@pytest.fixture
def table(tmp_path):
    """A table outside of a worker."""
    app = faust.App("words", broker="kafka://127.0.0.1:1", store="lsmkv://", datadir=tmp_path)
    table = app.Table("counts", default=int, partitions=4, options={"write_buffer_size": 1 << 20})
    yield table
    asyncio.run(table.data.on_stop())


TP = TopicPartition("words-counts-changelog", 2)


def test_a_partition_is_backed_up_and_restored_with_its_offset(table, tmp_path):
    store = table.data
    for offset in range(3):
        store._partition(2).commit({b"key": b"%d" % offset}, offset)
        asyncio.run(store.backup_partition(TP, purge=offset == 2, keep=2))
    store._partition(2).commit({b"key": None}, 3)
    store.restore_backup(TP)
    assert store._get(b"key") == b"2" and store.persisted_offset(TP) == 2
    store.restore_backup(2, latest=False, backup_id=0)
    assert store._get(b"key") == b"1" and store.persisted_offset(TP) == 1
    store.reset_state()
    assert store.persisted_offset(TP) is None and store._get(b"key") is None


def test_changes_are_seen_at_once_and_on_disk_with_the_offset_that_confirms_them(table):
    store = table.data
    partition = store._partition(2)
    store._partition(1).commit({b"other": b"1"}, 0)
    partition.commit({b"old": b"1", b"gone": b"1"}, 4)
    partition.waiting |= {b"new": b"2", b"old": b"3", b"gone": None}
    assert [store._get(key) for key in (b"new", b"old", b"gone", b"other", b"no")] == [b"2", b"3", None, b"1", None]
    assert sorted(partition.items()) == [(b"new", b"2"), (b"old", b"3")]
    assert dict(partition.db) == {b"old": b"1", b"gone": b"1"} and store.persisted_offset(TP) == 4
    store.set_persisted_offset(TP, 7)
    assert dict(partition.db) == {b"new": b"2", b"old": b"3"} and store.persisted_offset(TP) == 7
    store.set_persisted_offset(TP, 6)  # an older confirmation that comes late
    assert store.persisted_offset(TP) == 7
    # An expired key goes without an event, from the disk or before it gets there.
    partition.waiting[b"newer"] = b"4"
    for key in (b"new", b"newer", b"other", b"no"):
        store._del(key)
        assert not store._contains(key)
    assert asyncio.run(store.need_active_standby_for(TP))
    with pytest.raises(RuntimeError, match="event"):
        store._set(b"key", b"value")


def test_tables_and_locks_that_do_not_fit(table, tmp_path):
    app = table.app
    with pytest.raises(ImproperlyConfigured, match="use_partitioner"):
        _ = app.Table("others", use_partitioner=True).data
    path = table.data.partition_path(2)
    path.parent.mkdir(parents=True)
    with lsmkv.open(path):
        assert not asyncio.run(table.data.need_active_standby_for(TP))
    assert asyncio.run(table.data.need_active_standby_for(TP))
