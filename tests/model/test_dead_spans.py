"""Dead spans against a model, a dict for each of two keyspaces.

Iterators and snapshots stay open while keys are written, deleted, expired, ingested, flushed and compacted.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from soak import size
from timed_model import TimedModel

import lsmkv

NAMES = ("", "other")
OPTIONS = {
    "write_buffer_size": 8192,
    "target_file_size": 4096,
    "block_size": 256,
    "l0_compaction_trigger": 3,
    "large_value_threshold": 200,
}
START = 1000.0

names = st.sampled_from(NAMES)
numbers = st.integers(0, 59)
ranges = st.tuples(numbers, st.integers(1, 40)).map(lambda pair: range(pair[0], min(60, sum(pair))))
value_sizes = st.sampled_from([1, 1, 1, 400])


def key(i: int) -> bytes:
    return b"%02d" % i


class DeadSpans(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")
    iterators = Bundle("iterators")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
        self.clock = lsmkv.ManualClock(START)
        self.model = {name: TimedModel() for name in NAMES}
        self.db = self.open()
        for name in NAMES:
            self.fill(name, range(60), 1)

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.folder)

    def open(self) -> Any:
        return lsmkv.open(self.folder / "db", clock=self.clock, **OPTIONS)

    def space(self, name: str) -> Any:
        return self.db.keyspace(name) if name else self.db

    # --- writes

    @rule(name=names, span=ranges, size=value_sizes)
    def fill(self, name, span, size):
        for i in span:
            self.space(name).put(key(i), b"v" * size)
            self.model[name][key(i)] = b"v" * size

    @rule(name=names, i=numbers, size=value_sizes)
    def put(self, name, i, size):
        self.fill(name, [i], size)

    @rule(name=names, i=numbers, seconds=st.sampled_from([1, 5]))
    def put_for(self, name, i, seconds):
        self.space(name).put(key(i), b"timed", ttl=seconds)
        self.model[name].put(key(i), b"timed", self.clock.now + seconds)

    @rule(name=names, span=ranges)
    def delete(self, name, span):
        for i in span:
            self.space(name).delete(key(i))
            self.model[name].pop(key(i), None)

    @rule(name=names, span=ranges)
    def delete_range(self, name, span):
        self.space(name).delete_range(key(span[0]), key(span[-1]) + b"\0")
        for i in span:
            self.model[name].pop(key(i), None)

    @rule(
        puts=st.lists(st.tuples(names, numbers), max_size=5),
        deletes=st.lists(st.tuples(names, numbers), max_size=5),
        filler=st.sampled_from([0, 0, 700]),
        transact=st.booleans(),
    )
    def batch(self, puts, deletes, filler, transact):
        """With the filler it is written without the GIL."""
        with self.db.transaction() if transact else self.db.write_batch() as batch:
            for name, i in puts:
                batch.put(key(i), b"batch", keyspace=self.space(name))
                self.model[name][key(i)] = b"batch"
            for name, i in deletes:
                batch.delete(key(i), keyspace=self.space(name))
                self.model[name].pop(key(i), None)
            for i in range(filler):
                batch.put(b"filler%03d" % i, b"x" * 100)
            if filler:
                batch.delete_range(b"filler", b"fillet")

    @rule(name=names, span=ranges)
    def ingest(self, name, span):
        path = self.folder / "ingested.sst"
        with lsmkv.SSTWriter(path, seed=self.db.seed) as writer:
            for i in span:
                writer.put(key(i), b"ingested")
                self.model[name][key(i)] = b"ingested"
        self.space(name).ingest([path], move=True)

    @rule(name=names)
    def pop(self, name):
        """The first key, as a queue does."""
        first = next(iter(sorted(self.model[name])), None)
        assert next(self.space(name).iterator(include_value=False), None) == first
        if first is not None:
            self.space(name).delete(first)
            del self.model[name][first]

    # --- time and files

    @rule(seconds=st.sampled_from([1, 3]))
    def wait(self, seconds):
        self.clock.advance(seconds)
        for model in self.model.values():
            model.expire(self.clock.now)

    @rule()
    def flush(self):
        self.db.flush()

    @rule(name=names)
    def compact(self, name):
        self.space(name).compact_range()

    @rule()
    def reopen(self):
        self.db.close()
        self.db = self.open()

    @rule()
    def drop(self):
        self.db.drop_keyspace("other")
        self.db.keyspace("other")
        self.model["other"].clear()

    # --- readers of an earlier moment

    @rule(target=snapshots)
    def snapshot(self):
        spaces = {name: self.space(name) for name in NAMES}
        return self.db.snapshot(), spaces, {name: dict(model) for name, model in self.model.items()}

    @rule(taken=snapshots, i=numbers)
    def look_back(self, taken, i):
        snapshot, spaces, model = taken
        if not snapshot.closed:
            for name in NAMES:
                self.compare(snapshot.keyspace(spaces[name]), model[name], i)

    @rule(taken=consumes(snapshots))
    def close_snapshot(self, taken):
        taken[0].close()

    @rule(target=iterators, name=names, reverse=st.booleans(), i=st.none() | numbers, opened=st.integers(0, 3))
    def iterate(self, name, reverse, i, opened):
        """An iterator with the items that it still has to return; it has returned some."""
        expected = sorted(self.model[name].items(), reverse=reverse)
        it = self.space(name).iterator(reverse=reverse)
        if i is not None:
            it.seek(key(i))
            expected = [item for item in expected if (item[0] <= key(i) if reverse else item[0] >= key(i))]
        assert it.take(opened) == expected[:opened]
        return self.db, it, expected[opened:]

    @rule(taken=consumes(iterators))
    def finish(self, taken):
        """It judges expiries by the time at which it met the first one."""
        db, it, expected = taken
        if db is self.db:
            timed = {item for item in expected if item[1] == b"timed"}
            found = list(it)
            assert set(found) >= set(expected) - timed
            assert found == [item for item in expected if item in set(found)]

    # --- the present

    def compare(self, reader: Any, model: dict[bytes, bytes], i: int) -> None:
        expected = sorted(model.items())
        assert list(reader.iterator()) == expected
        assert list(reader.iterator(reverse=True)) == expected[::-1]
        after = [item for item in expected if item[0] >= key(i)]
        before = [item for item in expected if item[0] < key(i)]
        assert list(reader.iterator(start=key(i))) == after
        assert list(reader.iterator(stop=key(i), reverse=True)) == before[::-1]
        with reader.cursor() as cursor:
            assert (cursor.item() if cursor.seek(key(i)) else None) == next(iter(after), None)
            assert (cursor.item() if cursor.seek_for_prev(key(i) + b"\0") else None) == next(
                (item for item in reversed(expected) if item[0] <= key(i)), None
            )

    @rule(i=numbers)
    def look(self, i):
        for name in NAMES:
            self.compare(self.space(name), self.model[name], i)

    def open_reader(self):
        while True:
            try:
                return lsmkv.open(self.folder / "db", "r", clock=self.clock)
            except lsmkv.IOError as error:
                if error.errno != errno.EAGAIN:  # the background stayed ahead of it
                    raise

    @rule(i=numbers)
    def read_only(self, i):
        with self.open_reader() as reader:
            for name in NAMES:
                self.compare(reader.keyspace(name) if name else reader, self.model[name], i)

    @invariant()
    def agree(self):
        for name in NAMES:
            assert dict(self.space(name)) == self.model[name]


TestDeadSpans = DeadSpans.TestCase
TestDeadSpans.settings = settings(
    max_examples=size(12, 3000), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
