"""The database against a sorted dictionary: random operations, tiny options so that every level fills."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)
from sortedcontainers import SortedDict
from timed_model import TimedModel

import lsmkv
from lsmkv.options import MAX_LEVELS

# Few distinct keys, so that operations meet; some long ones and some that share long prefixes.
KEYS = st.one_of(
    st.integers(0, 60).map(lambda n: b"k%02d" % n),
    st.binary(max_size=3),
    st.sampled_from([b"", b"\xff", b"\xff\xff", b"p" * 300, b"p" * 300 + b"\0", b"p" * 299]),
)
VALUES = st.one_of(st.binary(max_size=20), st.integers(0, 255).map(lambda n: bytes([n]) * 700))
TTLS = st.sampled_from([1, 2, 5, 30])
OPTION_SETS = st.fixed_dictionaries(
    {
        "wal": st.sampled_from(["mmap", "write"]),
        "compression": st.sampled_from(["lz4", None, "zstd"]),
        "bits_per_key": st.sampled_from([10, 0, [4, 12], "auto"]),
        "block_cache_size": st.sampled_from([0, 1 << 14, 1 << 20]),
        "prefix_extractor": st.sampled_from([None, 1, b"k", [1, 2]]),
        "optimize_filters_for_hits": st.sampled_from([False, True]),
    }
)
TINY = {
    "write_buffer_size": 4096,
    "target_file_size": 4096,
    "block_size": 256,
    "level_size_ratio": 2,
    "l0_compaction_trigger": 2,
    "filter_shadow_ratio": 1.0,
}
# The smallest tree that reaches the last level: what `deepen` writes fills it.
DEEP = {**TINY, "l0_compaction_trigger": 1}


def deepen(db, model):
    """Writes until the last level there can be is in use."""
    rng = random.Random(0)
    for n in range(120):
        key = b"deep%03d" % n
        db[key] = model[key] = rng.randbytes(1000)
    db.compact_range()
    db._scheduler.wait_idle()
    assert db._versions.default.current.last_level == MAX_LEVELS - 1


def within(model, start, stop):
    return [(k, model[k]) for k in model if (start is None or k >= start) and (stop is None or k < stop)]


def copy_live(source, target):
    """Copies a database that is open. A file that goes meanwhile was no longer part of it."""
    os.mkdir(target)
    for name in os.listdir(source):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(os.path.join(source, name), os.path.join(target, name))


class Machine(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")

    @initialize(options=OPTION_SETS, deep=st.booleans())
    def begin(self, options, deep):
        self.folder = tempfile.mkdtemp(prefix="lsmkv-model-")
        self.path = self.folder + "/db"
        self.options = {**(DEEP if deep else TINY), **options}
        self.model = TimedModel()
        self.held = []
        self.clock = lsmkv.ManualClock(1000)
        self.db = lsmkv.open(self.path, clock=self.clock, **self.options)
        if deep:
            deepen(self.db, self.model)
        self.open_reader()

    def teardown(self):
        if hasattr(self, "db"):
            self.reader.close()
            self.db.close()
            assert lsmkv.verify(self.path).findings == []
            shutil.rmtree(self.folder)

    # Writes

    @rule(key=KEYS, value=VALUES)
    def put(self, key, value):
        self.db.put(key, value)
        self.model[key] = value

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def put_for(self, key, value, ttl):
        self.db.put(key, value, ttl=ttl)
        self.model.put(key, value, self.clock.now + ttl)

    @rule(start=st.integers(0, 60), count=st.integers(1, 60), ttl=TTLS)
    def put_many_for(self, start, count, ttl):
        for n in range(start, start + count):
            self.put_for(b"k%02d" % n, b"v" * n, ttl)

    @rule(key=KEYS, ttl=TTLS)
    def touch(self, key, ttl):
        assert self.db.touch(key, ttl) == (key in self.model)
        if key in self.model:
            self.model.put(key, self.model[key], self.clock.now + ttl)

    @rule(key=KEYS)
    def append(self, key):
        """An update keeps the expiry."""
        value, expiry = self.model.get(key, b"") + b"+", self.model.expiries.get(key)
        assert self.db.append(key, b"+") == len(value)
        self.model[key] = value
        if expiry is not None:
            self.model.expiries[key] = expiry

    @rule(seconds=TTLS)
    def wait(self, seconds):
        self.clock.advance(seconds)
        self.model.expire(self.clock.now)
        self.read.expire(self.clock.now)

    @rule(key=KEYS)
    def ttl(self, key):
        if key not in self.model:
            with pytest.raises(KeyError):
                self.db.ttl(key)
            return
        expiry = self.model.expiries.get(key)
        assert self.db.ttl(key) == (None if expiry is None else pytest.approx(expiry - self.clock.now))

    @rule(start=st.integers(0, 60), count=st.integers(1, 60), fill=st.integers(0, 255))
    def put_many(self, start, count, fill):
        for n in range(start, start + count):
            key, value = b"k%02d" % n, bytes([fill]) * (n * 5)
            self.db[key] = value
            self.model[key] = value

    @rule(key=KEYS, sync=st.booleans())
    def delete(self, key, sync):
        self.db.delete(key, sync=sync)
        self.model.pop(key, None)

    @rule(key=KEYS)
    def delete_item(self, key):
        if key in self.model:
            del self.db[key]
            del self.model[key]
        else:
            with pytest.raises(KeyError):
                del self.db[key]

    @rule(start=KEYS, stop=KEYS)
    def delete_range(self, start, stop):
        self.db.delete_range(start, stop)
        for key, _ in within(self.model, start, stop):
            del self.model[key]

    @rule(start=st.sampled_from([b"", b"k", b"k30"]), stop=st.sampled_from([b"k25", b"l", b"\xff"]))
    def delete_wide_range(self, start, stop):
        self.delete_range(start, stop)

    @rule()
    def clear(self):
        self.db.clear()
        self.model.clear()

    @rule(
        operations=st.lists(
            st.one_of(
                st.tuples(st.just("put"), KEYS, VALUES),
                st.tuples(st.just("put"), KEYS, VALUES, TTLS),
                st.tuples(st.just("delete"), KEYS),
                st.tuples(st.just("delete_range"), KEYS, KEYS),
            ),
            max_size=12,
        ),
        fail=st.booleans(),
    )
    def batch(self, operations, fail):
        changed = TimedModel(self.model)
        try:
            with self.db.write_batch() as batch:
                for name, *arguments in operations:
                    if name == "put" and len(arguments) == 3:
                        key, value, ttl = arguments
                        batch.put(key, value, ttl=ttl)
                        changed.put(key, value, self.clock.now + ttl)
                        continue
                    getattr(batch, name)(*arguments)
                    if name == "put":
                        changed[arguments[0]] = arguments[1]
                    elif name == "delete":
                        changed.pop(arguments[0], None)
                    else:
                        for key, _ in within(changed, *arguments):
                            del changed[key]
                if fail:
                    raise RuntimeError("roll back")
        except RuntimeError:
            assert fail
        else:
            self.model = changed

    # Reads

    @rule(key=KEYS)
    def get(self, key):
        assert self.db.get(key) == self.model.get(key)
        assert (key in self.db) == (key in self.model)

    @rule(keys=st.lists(KEYS, max_size=20))
    def multi_get(self, keys):
        assert self.db.multi_get(keys) == [self.model.get(key) for key in keys]

    @rule(key=KEYS)
    def explain(self, key):
        assert self.db.explain(key).found == (key in self.model)

    @rule(start=st.none() | KEYS, stop=st.none() | KEYS, reverse=st.booleans())
    def scan(self, start, stop, reverse):
        expected = within(self.model, start, stop)
        if reverse:
            expected.reverse()
        view = self.db.items(start, stop, reverse=reverse)
        assert list(view) == expected
        assert list(view) == expected
        assert list(reversed(view)) == expected[::-1]
        assert len(view) == len(expected)

    @rule(prefix=st.one_of(st.just(b"k"), st.just(b"k1"), KEYS))
    def scan_prefix(self, prefix):
        expected = [key for key in self.model if key.startswith(prefix)]
        assert list(self.db.keys(prefix=prefix)) == expected
        assert list(self.db.prefixed_db(prefix)) == [key[len(prefix) :] for key in expected]

    @rule(start=KEYS, moves=st.lists(st.sampled_from(["next", "prev", "seek"]), max_size=15), sought=KEYS)
    def cursor(self, start, moves, sought):
        keys = list(self.model)
        with self.db.cursor() as cursor:
            cursor.seek(start)
            at = self.model.bisect_left(start)
            for move in moves:
                assert cursor.valid == (0 <= at < len(keys))
                if not 0 <= at < len(keys):
                    cursor.seek(sought)
                    at = self.model.bisect_left(sought)
                    continue
                assert cursor.item() == (keys[at], self.model[keys[at]])
                if move == "seek":
                    cursor.seek(sought)
                    at = self.model.bisect_left(sought)
                else:
                    getattr(cursor, move)()
                    at += 1 if move == "next" else -1

    @rule(steps=st.lists(st.booleans(), max_size=15), reverse=st.booleans())
    def iterator(self, steps, reverse):
        """Between entries, as in plyvel: next and prev pass over the entry and return it."""
        keys = list(self.model)
        if reverse:
            keys.reverse()
        with self.db.iterator(reverse=reverse, include_value=False) as iterator:
            at = 0
            for forward in steps:
                if forward:
                    if at == len(keys):
                        with pytest.raises(StopIteration):
                            next(iterator)
                        continue
                    assert next(iterator) == keys[at]
                    at += 1
                else:
                    if at == 0:
                        with pytest.raises(StopIteration):
                            iterator.prev()
                        continue
                    at -= 1
                    assert iterator.prev() == keys[at]

    # Snapshots

    @rule(target=snapshots)
    def snapshot(self):
        pair = (self.db.snapshot(), SortedDict(self.model))
        self.held.append(pair)
        return pair

    @rule(pair=snapshots, key=KEYS)
    def read_snapshot(self, pair, key):
        snapshot, model = pair
        if snapshot.closed:
            with pytest.raises(lsmkv.ClosedError):
                snapshot.get(key)
            return
        assert snapshot.get(key) == model.get(key)
        assert snapshot.multi_get(list(model)) == list(model.values())
        assert list(snapshot.items()) == list(model.items())
        assert list(snapshot.items(reverse=True)) == list(model.items())[::-1]

    @rule(pair=consumes(snapshots))
    def close_snapshot(self, pair):
        pair[0].close()
        self.held.remove(pair)

    # The tree

    @rule()
    def flush(self):
        self.db.flush()

    @rule(start=st.none() | KEYS, stop=st.none() | KEYS)
    def compact(self, start, stop):
        self.db.compact_range(start, stop)

    @rule()
    def compact_all(self):
        self.db.compact_range()
        version = self.db._versions.default.current
        last = version.levels[version.last_level]
        assert not any(f.range_tombstones for f in last)
        assert not any(0 < f.min_expiry <= self.clock.now * 1000 for f in last)

    @rule(bits=st.sampled_from([0, 5, 14]))
    def rebuild_filters(self, bits):
        self.db.set_options(bits_per_key=bits, optimize_filters_for_hits=False)
        self.options["bits_per_key"] = bits
        self.options["optimize_filters_for_hits"] = False
        self.db.rebuild_filters()

    @rule()
    def reopen(self):
        self.db.close()
        self.db = lsmkv.open(self.path, clock=self.clock, **self.options)
        assert self.db.recovery_report.clean

    @rule()
    def crash_and_reopen(self):
        """The files as they are now, without any of close's work: what kill -9 leaves."""
        copy = self.folder + "/copy"
        self.db._work.claims.suspended += 1
        self.db._scheduler.wait_idle()
        copy_live(self.path, copy)
        self.db._work.claims.suspended -= 1
        self.db.close()
        shutil.rmtree(self.path)
        shutil.move(copy, self.path)
        self.db = lsmkv.open(self.path, clock=self.clock, **self.options)
        assert self.db.recovery_report.torn == []

    @rule(count=st.integers(0, 60), fill=st.integers(0, 255))
    def recreate(self, count, fill):
        """Another database in the same place, under the reader of the old one."""
        self.db.close()
        self.db = lsmkv.open(self.path, "n", clock=self.clock, **self.options)
        self.model = TimedModel()
        self.put_many(0, count, fill)

    # A read-only handle: its state is that of its last refresh, whatever the writer does

    def open_reader(self):
        self.reader = lsmkv.open(self.path, "r", clock=self.clock, **self.options)
        self.read = TimedModel(self.model)
        with pytest.raises(lsmkv.ReadOnlyError):
            self.reader.put(b"a", b"b")

    @rule()
    def reopen_reader(self):
        self.reader.close()
        self.open_reader()

    @rule(keys=st.lists(KEYS, min_size=1, max_size=20))
    def refresh_reader(self, keys):
        self.reader.refresh()
        self.read = TimedModel(self.model)
        self.read_reader(keys)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=20))
    def read_reader(self, keys):
        assert list(self.reader.items()) == list(self.read.items())
        for some in (keys, list(self.read)):
            expected = [self.read.get(key) for key in some]
            assert [self.reader.get(key) for key in some] == expected
            assert self.reader.multi_get(some) == expected
            assert [key in self.reader for key in some] == [key in self.read for key in some]
        assert self.reader.explain(keys[0]).found == (keys[0] in self.read)

    @rule(target=snapshots)
    def snapshot_of_reader(self):
        pair = (self.reader.snapshot(), SortedDict(self.read))
        self.held.append(pair)
        return pair

    @invariant()
    def levels_are_sound(self):
        if hasattr(self, "db"):
            self.db._versions.default.current.check()
            assert self.db._scheduler.counters.last_error is None

    @precondition(lambda self: hasattr(self, "db"))
    @rule()
    def everything(self):
        assert list(self.db.items()) == list(self.model.items())
        assert len(self.db) == len(self.model)
        assert bool(self.db) == bool(self.model)


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=40, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_the_deep_set_reaches_the_last_level(tmp_path):
    model = {}
    with lsmkv.open(tmp_path / "db", **DEEP) as db:
        deepen(db, model)
        db.compact_range()
        assert dict(db.items()) == model
