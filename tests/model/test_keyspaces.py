"""Keyspaces against a model: a dict for each, through batches, snapshots, drops, ingests, kills and reopens."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from soak import size

import lsmkv

NAMES = ("", "a", "b", "c")  # "" is the default keyspace
OPTIONS = {"write_buffer_size": 8192, "target_file_size": 4096, "block_size": 512, "l0_compaction_trigger": 2}

names = st.sampled_from(NAMES)
keys = st.binary(min_size=0, max_size=3)
values = st.binary(max_size=40)
edits = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names, keys, values),
        st.tuples(st.just("delete"), names, keys),
        st.tuples(st.just("delete_range"), names, keys, keys),
    ),
    max_size=8,
)


def apply(model: dict, edit: tuple) -> None:
    kind, name, *rest = edit
    held = model[name]
    if kind == "put":
        held[rest[0]] = rest[1]
    elif kind == "delete":
        held.pop(rest[0], None)
    else:
        for key in [key for key in held if rest[0] <= key < rest[1]]:
            del held[key]


class Keyspaces(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
        self.path = self.folder / "db"
        self.model: dict[str, dict[bytes, bytes]] = {"": {}}
        self.db = lsmkv.open(self.path, **OPTIONS)

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.folder)

    def space(self, name: str):
        return self.db.keyspace(name, create=False) if name else self.db

    def known(self, edit: tuple) -> bool:
        return edit[1] in self.model

    @rule(name=st.sampled_from(NAMES[1:]), bits=st.sampled_from([None, 0, 14]))
    def create(self, name, bits):
        options = {} if bits is None else {"bits_per_key": bits}
        self.db.keyspace(name, **options)
        self.model.setdefault(name, {})

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
            for kind, name, *rest in edits:
                getattr(batch, kind)(*rest, keyspace=self.space(name))
        for edit in edits:
            apply(self.model, edit)

    @rule(edits=edits)
    def single(self, edits):
        for edit in filter(self.known, edits):
            kind, name, *rest = edit
            getattr(self.space(name), kind)(*rest)
            apply(self.model, edit)

    @rule(name=names)
    def clear(self, name):
        if name in self.model:
            self.space(name).clear()
            self.model[name].clear()

    @rule(name=names, entries=st.dictionaries(keys, values, min_size=1, max_size=5))
    def ingest(self, name, entries):
        if name not in self.model:
            return
        path = self.folder / "ingested.sst"
        with lsmkv.SSTWriter(path, seed=self.db.seed) as writer:
            for key in sorted(entries):
                writer.put(key, entries[key])
        self.space(name).ingest([path], move=True)
        self.model[name].update(entries)

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
        self.db = lsmkv.open(self.path, **OPTIONS)

    @rule()
    def kill(self):
        """What a kill leaves is what is in the files now. Waits for the background, which changes them."""
        self.db._scheduler.wait_idle()
        copy = self.folder / "copy"
        shutil.copytree(self.path, copy)
        self.db.close()
        shutil.rmtree(self.path)
        copy.rename(self.path)
        self.db = lsmkv.open(self.path, **OPTIONS)

    @rule()
    def checkpoint(self):
        self.db.checkpoint(self.folder / "checkpoint")
        with lsmkv.open(self.folder / "checkpoint", **OPTIONS) as copy:
            self.compare(copy)
        shutil.rmtree(self.folder / "checkpoint")

    @rule()
    def read_only(self):
        with lsmkv.open(self.path, "r") as reader:
            self.compare(reader)

    @rule(name=names, key=keys)
    def get(self, name, key):
        if name in self.model:
            assert self.space(name).get(key) == self.model[name].get(key)

    def compare(self, db) -> None:
        assert db.keyspaces() == sorted(set(self.model) - {""})
        for name, held in self.model.items():
            assert dict(db.keyspace(name, create=False) if name else db) == held

    @invariant()
    def agree(self):
        self.compare(self.db)


TestKeyspaces = Keyspaces.TestCase
TestKeyspaces.settings = settings(
    max_examples=size(25, 2000), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
