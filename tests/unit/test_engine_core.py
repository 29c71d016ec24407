"""The data plane on its own, against a sorted model: no control plane, tiny memtables, jobs run manually."""

import itertools
import random
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sortedcontainers import SortedDict

from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.engine import Engine
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.read.read_state import ReadState
from lsmkv_ext.reader import SnapshotBase
from lsmkv_ext.store import Store
from lsmkv_ext.table.table import Table
from lsmkv_ext.wal.writer import LogWriter

SEED = 42
KEYS = st.one_of(
    st.binary(max_size=3),
    st.integers(0, 60).map(lambda i: b"key%04d" % i),
    st.integers(0, 20).map(lambda i: b"a-rather-long-shared-prefix/%02d" % i),
    st.sampled_from([b"", b"\0", b"\0\0", b"\xff", b"\xff\xff", b"k", b"key"]),
)
VALUES = st.one_of(st.binary(max_size=8), st.integers(0, 400).map(lambda n: b"v" * n))


class Rig(Store):
    """A store whose rotations and jobs the test runs itself."""

    def __init__(self, folder, buffer=2000, wal="mmap"):
        self.folder = folder
        self.numbers = FileNumbers(1)
        self.cache = BlockCache(8192)
        self.fds = FdCache(16)
        self.buffer = buffer
        self.wal = wal
        self.levels = [[], [], []]
        engine = Engine(folder, SEED)
        engine.capacity = buffer
        self._bind(engine, engine.tree)
        memtable, log = self.new_memtable(0)
        engine.start([engine.tree], [ReadState([memtable], self.levels, SEED)], log, 0)
        self._engine.on_full = self.rotate

    def new_memtable(self, last_seq):
        number = self.numbers.next()
        memtable = Memtable(SEED, self.buffer)
        memtable.number = number
        path = f"{self.folder}/{number:06d}.wal"
        log = LogWriter(path, number, mode=self.wal, previous_last_seq=last_seq)
        return memtable, log

    def rotate(self, frees=False):
        memtable, log = self.new_memtable(self._engine.last_seq)
        self._engine.rotate({0: memtable}, memtable.number, log)

    def run(self, inputs, drop, **kwargs):
        result = Job(
            inputs, directory=self.folder, numbers=self.numbers, seed=SEED, block_size=256, restart_interval=4, **kwargs
        ).run()
        made = []
        for output in result["outputs"]:
            path = f"{self.folder}/{output.number:06d}.sst"
            made.append(Table(path, output.number, self.cache, self.fds))
        return made

    def flush(self):
        with self._engine.exclusive():
            self.rotate()
        memtables = self._engine.immutables
        made = self.run(memtables, memtables, single_output=True)
        self.levels = [made + self.levels[0], *self.levels[1:]]
        self.publish(memtables)

    def publish(self, drop=()):
        self._engine.prepare([self._live], {0: self.levels}, drop)
        self._engine.publish()

    def compact(self, level):
        """All of a level into the next one."""
        upper = self.levels[level] if level == 0 else [self.levels[level]]
        inputs = [*upper, self.levels[level + 1]]
        below = [(t.smallest, t.largest) for tables in self.levels[level + 2 :] for t in tables]
        made = self.run([i for i in inputs if i], [], output_level=level + 1, target_file_size=1500, below=below)
        self.levels = [
            [] if i == level else (made if i == level + 1 else tables) for i, tables in enumerate(self.levels)
        ]
        self.publish()


class EngineMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rig = Rig(self.folder.name)
        self.model = SortedDict()
        self.snapshots = []

    def teardown(self):
        self.rig._engine.close()
        self.folder.cleanup()

    @rule(key=KEYS, value=VALUES)
    def put(self, key, value):
        self.rig.put(key, value)
        self.model[key] = value

    @rule(pairs=st.lists(st.tuples(KEYS, VALUES), max_size=30))
    def put_many(self, pairs):
        for key, value in pairs:
            self.rig.put(key, value)
            self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key):
        self.rig.delete(key)
        self.model.pop(key, None)

    def model_delete_range(self, start, stop):
        if start < stop:
            for key in list(self.model.irange(start, stop, inclusive=(True, False))):
                del self.model[key]

    @rule(start=KEYS, stop=KEYS)
    def delete_range(self, start, stop):
        self.rig.delete_range(start, stop)
        self.model_delete_range(start, stop)

    @rule(ops=st.lists(st.tuples(st.sampled_from(["put", "delete", "range"]), KEYS, KEYS), max_size=12))
    def batch(self, ops):
        batch = WriteBatch(self.rig)
        for op, a, b in ops:
            if op == "put":
                batch.put(a, b)
                self.model[a] = b
            elif op == "delete":
                batch.delete(a)
                self.model.pop(a, None)
            else:
                batch.delete_range(a, b)
                self.model_delete_range(a, b)
        batch.write()

    @rule()
    def flush(self):
        self.rig.flush()

    @rule(level=st.sampled_from([0, 1]))
    def compact(self, level):
        self.rig.compact(level)

    @precondition(lambda self: len(self.snapshots) < 4)
    @rule()
    def take_snapshot(self):
        self.snapshots.append((SnapshotBase(self.rig), self.model.copy()))

    @precondition(lambda self: self.snapshots)
    @rule(reverse=st.booleans())
    def check_snapshot(self, reverse):
        snapshot, model = self.snapshots.pop(0)
        expect = list(model.items())
        assert list(snapshot.iterator(reverse=reverse)) == (expect[::-1] if reverse else expect)
        assert snapshot.multi_get(list(model)) == list(model.values())
        for key in list(model)[:5]:
            assert snapshot[key] == model[key]

    @rule(key=KEYS)
    def get(self, key):
        assert self.rig.get(key) == self.model.get(key)
        assert (key in self.rig) == (key in self.model)
        told = self.rig._explain(key)
        assert told["found"] == (key in self.model)
        assert all(step["result"] == "absent" for step in told["steps"][:-1])

    @rule(keys=st.lists(KEYS, max_size=40))
    def multi_get(self, keys):
        assert self.rig.multi_get(keys) == [self.model.get(key) for key in keys]

    @rule(start=KEYS, stop=KEYS, reverse=st.booleans(), closed=st.booleans(), left=st.booleans())
    def scan(self, start, stop, reverse, closed, left):
        it = self.rig.iterator(start=start, stop=stop, reverse=reverse, include_stop=closed, include_start=left)
        expect = [
            (k, v)
            for k, v in self.model.items()
            if (k > start or (left and k == start)) and (k < stop or (closed and k == stop))
        ]
        assert list(it) == (expect[::-1] if reverse else expect)

    @rule(prefix=st.sampled_from([b"", b"k", b"key00", b"a-", b"\xff", b"\0"]), reverse=st.booleans())
    def scan_prefix(self, prefix, reverse):
        expect = [(k, v) for k, v in self.model.items() if k.startswith(prefix)]
        assert list(self.rig.iterator(prefix=prefix, reverse=reverse)) == (expect[::-1] if reverse else expect)

    @rule(
        moves=st.lists(st.sampled_from(["next", "prev", "seek", "start", "stop"]), max_size=25),
        places=st.lists(KEYS, min_size=25, max_size=25),
        reverse=st.booleans(),
    )
    def wander(self, moves, places, reverse):
        keys = list(self.model)
        if reverse:
            keys.reverse()
        it = self.rig.iterator(include_value=False, reverse=reverse)
        gap = 0
        for move, target in zip(moves, places, strict=False):
            if move == "next":
                expect = keys[gap] if gap < len(keys) else None
                gap = min(gap + 1, len(keys))
                assert next(it, None) == expect
            elif move == "prev":
                expect = keys[gap - 1] if gap > 0 else None
                gap = max(gap - 1, 0)
                try:
                    got = it.prev()
                except StopIteration:
                    got = None
                assert got == expect
            elif move == "seek":
                it.seek(target)
                gap = sum(1 for k in keys if (k > target if reverse else k < target))
            elif move == "start":
                it.seek_to_start()
                gap = 0
            else:
                it.seek_to_stop()
                gap = len(keys)

    @rule(moves=st.lists(st.sampled_from(["next", "prev"]), max_size=12), place=KEYS, before=st.booleans())
    def cursor(self, moves, place, before):
        keys = list(self.model)
        cursor = self.rig.cursor()
        if before:
            at = sum(1 for k in keys if k <= place) - 1
            assert cursor.seek_for_prev(place) == (at >= 0)
        else:
            at = sum(1 for k in keys if k < place)
            assert cursor.seek(place) == (at < len(keys))
        for move in moves:
            if not cursor.valid:
                break
            assert cursor.item() == (keys[at], self.model[keys[at]])
            at += 1 if move == "next" else -1
            assert (cursor.next() if move == "next" else cursor.prev()) == (0 <= at < len(keys))

    @invariant()
    def one_state(self):
        assert self.rig._engine.inflight == 0


EngineMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestEngineMachine = EngineMachine.TestCase


@pytest.fixture(params=["mmap", "write"])
def rig(request, tmp_path):
    engine = Rig(str(tmp_path), buffer=1 << 20, wal=request.param)
    yield engine
    engine._engine.close()


def test_a_key_is_found_below_any_number_of_tables(rig):
    """More tables in L0 than are asked at a time, all over the same range, each holding one key of its own."""
    rig.put(b"common/key000", b"bottom")
    rig.put(b"common/key999", b"end")
    rig.flush()
    rig.compact(0)
    for i in range(70):
        rig.put(b"common/key000", b"%d" % i)
        rig.put(b"common/key%03d" % (i + 1), b"own")
        rig.put(b"common/key998", b"%d" % i)
        rig.flush()
    wanted = [b"common/key%03d" % i for i in range(1, 71)] + [b"common/key000", b"common/key998", b"common/key999"]
    values = [b"own"] * 70 + [b"69", b"69", b"end"]
    assert [rig.get(key) for key in wanted] == rig.multi_get(wanted) == values
    missing = [b"common/key%03d" % i for i in range(100, 200)]
    assert [rig.get(key) for key in missing] == rig.multi_get(missing) == [None] * 100


@pytest.mark.parametrize("prefix", [b"", b"short", b"a prefix longer than eight bytes/"])
def test_bounds_that_share_their_first_bytes(rig, prefix):
    """Tables of a level whose bounds differ only far behind; keys before, between, behind and outside of all."""
    stems = [b"", b"\0", b"m", b"m" * 8, b"m" * 9, b"m" * 16 + b"a", b"m" * 16 + b"b", b"z", b"\xff" * 12]
    present = sorted({prefix + stem + b"%02d" % i for stem in stems for i in range(20)})
    rng = random.Random(1)
    values = [rng.randbytes(60) for _ in present]
    for key, value in zip(present, values, strict=True):
        rig.put(key, value)
    rig.flush()
    rig.compact(0)
    rig.compact(1)
    assert len(rig.levels[2]) > 5
    absent = [prefix[:i] for i in range(len(prefix) + 1)] + [prefix + stem for stem in stems]
    absent += [key + b"\0" for key in present] + [key[:-1] + b"!" for key in present] + [b"\xff" * 60, b""]
    absent = [key for key in absent if key not in set(present)]
    assert [rig.get(key) for key in present] == rig.multi_get(present) == values
    assert [rig.get(key) for key in absent] == rig.multi_get(absent) == [None] * len(absent)


def test_scan_sees_one_state_while_writes_go_on(rig):
    for i in range(2000):
        rig.put(b"%05d" % i, b"old")
    it = rig.iterator()
    first = list(itertools.islice(it, 3))
    for i in range(3000):
        rig.put(b"%05d" % i, b"new")
    rig.flush()
    rig.compact(0)
    rest = list(it)
    assert [k for k, _ in first + rest] == [b"%05d" % i for i in range(2000)]
    assert {v for _, v in first + rest} == {b"old"}


def test_large_batch_off_the_gil_is_whole(rig):
    batch = WriteBatch(rig)
    for i in range(5000):
        batch.put(b"%06d" % i, b"x" * 30)
    assert batch.size_bytes > 64 << 10
    batch.write()
    assert len(batch) == 0
    assert sum(1 for _ in rig.iterator()) == 5000
    assert rig._engine.last_seq == 5000


@pytest.mark.parametrize("bad", ["text", 3, None])
def test_wrong_types_are_refused(rig, bad):
    with pytest.raises(TypeError):
        rig.put(bad, b"v")
    with pytest.raises(TypeError):
        rig.put(b"k", bad)
    with pytest.raises(TypeError):
        rig.get(bad)
    with pytest.raises(TypeError):
        rig.delete(bad)
    assert rig._engine.last_seq == 0


def test_limits(rig):
    rig.put(b"k" * 65535, b"")
    assert rig.get(b"k" * 65535) == b""
    with pytest.raises(ValueError, match="65535"):
        rig.put(b"k" * 65536, b"")
    batch = WriteBatch(rig)
    with pytest.raises(ValueError, match="65535"):
        batch.put(b"k" * 65536, b"")


def test_bytes_like_keys(rig):
    rig.put(bytearray(b"k"), memoryview(b"value")[1:])
    assert rig.get(memoryview(b"k")) == b"alue"
    assert rig.multi_get([bytearray(b"k"), b"none"]) == [b"alue", None]


def test_explain_names_each_step(rig):
    rig.put(b"a", b"1")
    rig.put(b"c", b"1")
    rig.flush()
    told = rig._explain(b"a")
    assert told["found"]
    assert [step["source"] for step in told["steps"]] == ["memtable", "table"]
    assert told["steps"][1]["filter"] == "maybe"
    assert told["steps"][1]["sequence"] == 1
    assert not rig._explain(b"b")["found"]


def test_explain_tells_a_tombstone_from_a_range_tombstone(rig):
    for key in b"a", b"b", b"c":
        rig.put(key, b"1")
    rig.delete(b"a")
    rig.delete_range(b"b", b"c")
    for flushed in False, True:
        if flushed:
            rig.flush()
        steps = [rig._explain(key)["steps"][-1] for key in (b"a", b"b", b"c")]
        assert [step["result"] for step in steps] == ["deleted", "range-deleted", "found"]
        assert [step["sequence"] for step in steps] == [4, 5, 3]


def test_explain_counts_as_no_lookup(rig):
    rig.put(b"a", b"1")
    rig.flush()
    before = rig._engine.counters(rig._live)
    rig._explain(b"a")
    rig._explain(b"b")
    assert rig._engine.counters(rig._live) == before


def test_a_snapshot_explains_what_it_sees(rig):
    rig.put(b"a", b"1")
    with SnapshotBase(rig) as snapshot:
        rig.put(b"a", b"2")
        assert snapshot._explain(b"a")["steps"][0]["sequence"] == 1
        assert rig._explain(b"a")["steps"][0]["sequence"] == 2


def test_a_read_only_engine_still_reads(rig):
    from lsmkv_ext.errors import ReadOnlyError

    rig.put(b"a", b"1")
    rig._engine.refuse(OSError(5, "fsync"))
    with pytest.raises(ReadOnlyError, match="fsync"):
        rig.put(b"b", b"1")
    assert rig[b"a"] == b"1"
