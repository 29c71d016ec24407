"""Keyspaces against a model: a dict for each, through batches, transactions, expiries, snapshots, drops, ingests, kills
and reopens.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from soak import size
from timed_model import TimedModel

import lsmkv

NAMES = ("", "a", "b", "c")  # "" is the default keyspace
OPTIONS = {"write_buffer_size": 8192, "target_file_size": 4096, "block_size": 512, "l0_compaction_trigger": 2}

START = 1000.0  # of the clock

names = st.sampled_from(NAMES)
ttls = st.sampled_from([1, 3, 10])
keys = st.binary(min_size=0, max_size=3)
values = st.binary(max_size=40)
an_edit = st.one_of(
    st.tuples(st.just("put"), names, keys, values),
    st.tuples(st.just("put_for"), names, keys, values, ttls),
    st.tuples(st.just("delete"), names, keys),
    st.tuples(st.just("delete_range"), names, keys, keys),
)
edits = st.lists(an_edit, max_size=8)


def call(target, edit: tuple, **options) -> None:
    """Makes the edit: by a call of a keyspace, of a batch or of a transaction."""
    kind, _, *rest = edit
    if kind == "put_for":
        target.put(*rest[:2], ttl=rest[2], **options)
    else:
        getattr(target, kind)(*rest, **options)


def touches(edit: tuple, name: str, key: bytes) -> bool:
    kind, of, *rest = edit
    return of == name and (rest[0] <= key < rest[1] if kind == "delete_range" else rest[0] == key)


def apply(model: dict[str, TimedModel], edit: tuple, now: float) -> None:
    kind, name, *rest = edit
    held = model[name]
    if kind == "put":
        held[rest[0]] = rest[1]
    elif kind == "put_for":
        held.put(rest[0], rest[1], now + rest[2])
    elif kind == "delete":
        held.pop(rest[0], None)
    else:
        for key in [key for key in held if rest[0] <= key < rest[1]]:
            del held[key]


def copy_if_there(source: str, target: str) -> None:
    """A table that no snapshot holds any more may be removed meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


class Keyspaces(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
        self.path = self.folder / "db"
        self.model: dict[str, TimedModel] = {"": TimedModel()}
        self.clock = lsmkv.ManualClock(START)
        self.now = START  # of the database, which never goes back
        self.db = self.open()

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.folder)

    def open(self, flag: str = "c", path: Path | None = None):
        return lsmkv.open(path or self.path, flag, clock=self.clock, **OPTIONS)

    def apply(self, edit: tuple) -> None:
        apply(self.model, edit, self.now)

    def space(self, name: str):
        return self.db.keyspace(name, create=False) if name else self.db

    def known(self, edit: tuple) -> bool:
        return edit[1] in self.model

    @rule(name=st.sampled_from(NAMES[1:]), bits=st.sampled_from([None, 0, 14]))
    def create(self, name, bits):
        options = {} if bits is None else {"bits_per_key": bits}
        self.db.keyspace(name, **options)
        self.model.setdefault(name, TimedModel())

    @rule(name=st.sampled_from(NAMES[1:]))
    def drop(self, name):
        if name in self.model:
            self.db.drop_keyspace(name)
            del self.model[name]
        else:
            with pytest.raises(lsmkv.KeyspaceError):
                self.db.drop_keyspace(name)

    @rule(edits=edits, sync=st.booleans())
    def batch(self, edits, sync):
        edits = [edit for edit in edits if self.known(edit)]
        with self.db.write_batch(sync=sync) as batch:
            for edit in edits:
                call(batch, edit, keyspace=self.space(edit[1]))
        for edit in edits:
            self.apply(edit)

    @rule(edits=edits)
    def single(self, edits):
        for edit in filter(self.known, edits):
            call(self.space(edit[1]), edit)
            self.apply(edit)

    @rule(
        reads=st.lists(st.tuples(names, keys), max_size=4), between=st.none() | an_edit, edits=edits, wait=st.booleans()
    )
    def transaction(self, reads, between, edits, wait):
        """Reads, while another write comes between, then writes: it conflicts if that write met what was read."""
        tx = self.db.transaction()
        reads = [(name, key) for name, key in reads if name in self.model]
        for name, key in reads:
            assert tx.get(key, keyspace=self.space(name)) == self.model[name].get(key)
        edits = [edit for edit in edits if self.known(edit)]
        for edit in edits:
            call(tx, edit, keyspace=self.space(edit[1]))
        at = self.now
        if between is not None and self.known(between):
            call(self.space(between[1]), between)
            self.apply(between)
        if wait:
            self.wait(3)
        met = between is not None and any(touches(between, name, key) for name, key in reads)
        if met and edits:
            with pytest.raises(lsmkv.ConflictError):
                tx.commit()
            return
        tx.commit()
        for edit in edits:
            apply(self.model, edit, at)
            self.expire()

    @rule(taken=st.booleans(), name=names, low=keys, high=keys, key=keys)
    def transaction_over_a_range(self, taken, name, low, high, key):
        """A key that appears in a range that was read is a conflict, and one beside it is none."""
        if name not in self.model or not low < high:
            return
        tx = self.db.transaction()
        found = dict(tx.items(low, high, keyspace=self.space(name)))
        assert found == {k: v for k, v in self.model[name].items() if low <= k < high}
        tx.put(b"by", b"transaction")
        if taken:
            self.single([("put", name, key, b"between")])
        if taken and low <= key < high:
            with pytest.raises(lsmkv.ConflictError):
                tx.commit()
        else:
            tx.commit()
            self.apply(("put", "", b"by", b"transaction"))

    @rule(name=names, key=keys, ttl=ttls | st.none())
    def touch(self, name, key, ttl):
        if name not in self.model:
            return
        held = self.model[name]
        assert self.space(name).touch(key, ttl) == (key in held)
        if key in held and ttl is None:
            held[key] = held[key]
        elif key in held:
            held.put(key, held[key], self.now + ttl)

    @rule(name=names, key=keys, suffix=values)
    def append(self, name, key, suffix):
        """Keeps the expiry."""
        if name not in self.model:
            return
        held = self.model[name]
        expiry = held.expiries.get(key) if key in held else None
        value = held.get(key, b"") + suffix
        assert self.space(name).append(key, suffix) == len(value)
        held[key] = value
        if expiry is not None:
            held.expiries[key] = expiry

    @rule(seconds=ttls)
    def wait(self, seconds):
        self.clock.advance(seconds)
        self.now = max(self.now, self.clock.now)
        assert self.db._engine.now() == self.now * 1000
        self.expire()

    @rule()
    def set_the_clock_back(self):
        self.clock.set(START)
        assert self.db._engine.now() == self.now * 1000

    def expire(self):
        for held in self.model.values():
            held.expire(self.now)

    @rule(name=names)
    def clear(self, name):
        if name in self.model:
            self.space(name).clear()
            self.model[name].clear()

    @rule(name=names, entries=st.dictionaries(keys, values, min_size=1, max_size=5), ttl=ttls | st.none())
    def ingest(self, name, entries, ttl):
        if name not in self.model:
            return
        path = self.folder / "ingested.sst"
        with lsmkv.SSTWriter(path, seed=self.db.seed) as writer:
            for key in sorted(entries):
                writer.put(key, entries[key], expire_at=None if ttl is None else self.now + ttl)
        self.space(name).ingest([path], move=True)
        for key, value in entries.items():
            self.apply(("put", name, key, value) if ttl is None else ("put_for", name, key, value, ttl))

    @rule()
    def flush(self):
        self.db.flush()

    @rule(name=names)
    def compact(self, name):
        if name in self.model:
            self.space(name).compact_range()

    @rule(target=snapshots)
    def snapshot(self):
        spaces = {name: self.space(name) for name in self.model}
        return self.db.snapshot(), spaces, {name: dict(held) for name, held in self.model.items()}

    @rule(taken=snapshots)
    def look_back(self, taken):
        snapshot, spaces, model = taken
        if snapshot.closed:
            return
        for name, space in spaces.items():
            assert dict(snapshot.keyspace(space)) == model[name]

    @rule(taken=consumes(snapshots))
    def close_snapshot(self, taken):
        taken[0].close()

    @rule()
    def reopen(self):
        self.db.close()
        self.db = self.open()

    @rule()
    def kill(self):
        """What a kill leaves is what is in the files now. The background, which changes them, stands still."""
        for work in self.db._scheduler.works():
            work.claims.suspended += 1
        self.db._scheduler.wait_idle()
        copy = self.folder / "copy"
        shutil.copytree(self.path, copy, copy_function=copy_if_there)
        self.db.close()
        shutil.rmtree(self.path)
        copy.rename(self.path)
        self.db = self.open()

    @rule()
    def checkpoint(self):
        self.db.checkpoint(self.folder / "checkpoint")
        with self.open(path=self.folder / "checkpoint") as copy:
            self.compare(copy)
        shutil.rmtree(self.folder / "checkpoint")

    @rule()
    def read_only(self):
        with self.open("r") as reader:
            self.compare(reader)

    @rule(name=names, key=keys)
    def get(self, name, key):
        if name in self.model:
            assert self.space(name).get(key) == self.model[name].get(key)

    def compare(self, db) -> None:
        assert db.keyspaces() == sorted(set(self.model) - {""})
        for name, held in self.model.items():
            space = db.keyspace(name, create=False) if name else db
            assert dict(space) == held
            left = {key: held.expiries[key] - self.now for key in held if key in held.expiries}
            assert {key: space.ttl(key) for key in held} == {key: left.get(key) for key in held}

    @invariant()
    def agree(self):
        self.compare(self.db)


TestKeyspaces = Keyspaces.TestCase
TestKeyspaces.settings = settings(
    max_examples=size(15, 2000), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
