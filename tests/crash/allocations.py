"""Jobs of the lab: an operation during which an allocation fails, and what is there afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lsmkv

from .allocfault import Control

Model = dict[bytes, bytes]

# Nothing runs in the background but what the scenario asks for.
QUIET = {
    "write_buffer_size": 1 << 20,
    "target_file_size": 16384,
    "l0_compaction_trigger": 100,
    "l0_slowdown_trigger": 200,
    "l0_stop_trigger": 300,
}


class Scenario:
    """One operation on a database of some tables. To add one: a subclass that says what differs, and its name below."""

    db: lsmkv.DB | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model: Model = {}

    @property
    def path(self) -> Path:
        return self.folder / "db"

    def setup(self) -> None:
        """Before allocations fail."""
        self.db = lsmkv.open(self.path, **QUIET)
        for generation in range(3):
            self.write(generation)
            self.db.flush()

    def write(self, generation: int) -> None:
        for i in range(300):
            key = b"k%04d" % (i * (generation + 1) % 400)
            self.model[key] = b"%d-%d" % (generation, i)
            self.db.put(key, self.model[key])

    def act(self) -> None:
        raise NotImplementedError

    def done(self) -> Model:
        """What is there once the operation went well."""
        return dict(self.model)


class Flush(Scenario):
    def setup(self) -> None:
        super().setup()
        self.write(3)

    def act(self) -> None:
        self.db.flush()


class FlushIntoNewManifest(Flush):
    def setup(self) -> None:
        super().setup()
        self.db._versions._manifest_limit = 0


class Compaction(Scenario):
    def act(self) -> None:
        self.db.compact_range()


class FilterRebuild(Scenario):
    def setup(self) -> None:
        super().setup()
        self.db.set_options(bits_per_key=15)

    def act(self) -> None:
        self.db.rebuild_filters()


INGESTED = {b"k%04d" % i: b"ingested" for i in range(100)}


class Ingest(Scenario):
    def setup(self) -> None:
        super().setup()
        writer = lsmkv.SSTWriter(self.folder / "table.sst")
        for key, value in INGESTED.items():
            writer.put(key, value)
        writer.finish()
        self.write(3)

    def act(self) -> None:
        self.db.ingest([self.folder / "table.sst"])

    def done(self) -> Model:
        return {**self.model, **INGESTED}


SCENARIOS: dict[str, type[Scenario]] = {
    "flush": Flush,
    "flush into a new manifest": FlushIntoNewManifest,
    "compaction": Compaction,
    "filter rebuild": FilterRebuild,
    "ingest": Ingest,
}


def differences(db: lsmkv.DB, states: list[Model]) -> list[str]:
    """How what the database holds differs from the nearest of `states`."""
    found = dict(db.items())
    wrong = [key for key, value in found.items() if db.get(key) != value]
    problems = [f"a get and a scan differ for {len(wrong)} keys, the first is {wrong[0]!r}"] if wrong else []
    if found not in states:
        keys = min((sorted(k for k in found.keys() | s.keys() if found.get(k) != s.get(k)) for s in states), key=len)
        problems.append(f"{len(keys)} keys differ, the first is {keys[0]!r}: {found.get(keys[0])!r}")
    return problems


def write_more(db: lsmkv.DB, states: list[Model]) -> list[Model]:
    """What may be there after some more writes; a database that turned read-only refuses them all, and leaves what is
    there to the next open.
    """
    later = {b"k%04d" % i: b"later" for i in range(0, 500, 7)}
    live = dict(db.items())
    try:
        for key, value in later.items():
            db.put(key, value)
        db.flush()
    except lsmkv.ReadOnlyError:
        return states
    return [{**live, **later}]


def fail_allocation(folder: str, scenario: str, nth: int, sticky: bool = False) -> dict[str, Any]:
    """Runs the scenario while its nth allocation fails; compares what is there, live and after a reopen."""
    control = Control()
    trial = SCENARIOS[scenario](Path(folder))
    trial.setup()
    states = [dict(trial.model), trial.done()]
    raised = None
    control.arm(nth, sticky)
    try:
        trial.act()
    except (MemoryError, lsmkv.Error) as error:
        raised = repr(error)
    control.disarm()
    said = {"raised": raised, "hits": control.hits(), "calls": control.calls(), "place": control.place()}
    if raised is None:
        states = states[1:]
    problems = []
    if trial.db is not None:
        problems += [f"live: {problem}" for problem in differences(trial.db, states)]
        states = write_more(trial.db, states)
        problems += [f"after more writes: {problem}" for problem in differences(trial.db, states)]
        trial.db.close()
    try:
        with lsmkv.open(trial.path) as db:
            problems += [f"reopened: {problem}" for problem in differences(db, states)]
            db.put(b"k", b"v")
    except lsmkv.Error as error:
        problems.append(f"the reopen failed: {error!r}")
    return {**said, "problems": problems}
