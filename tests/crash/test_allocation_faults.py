"""Every allocation fails once, or from some point on: the answers stay right, and a reopen finds everything."""

from __future__ import annotations

import random
import shutil

import pytest
from progress import Progress
from soak import SOAK, figure, size

from .allocations import SCENARIOS
from .allocfault import CONTROLS, interpreter_copes

# Places per scenario, plane and mode. In a soak that is every allocation of the data plane.
PLACES = size(3, 900)
MODES = {"once": False, "from then on": True}


def attempt(lab, folder, nth: int, **trial) -> dict:
    place = folder / str(nth)
    place.mkdir()
    outcome = lab.run("fail_allocation", folder=str(place), nth=nth, **trial)
    assert outcome.ok, f"allocation {nth} of {trial}: {outcome.words()}"
    said = outcome.value
    assert said["problems"] == [], f"allocation {nth} of {trial}, {said['place']}: {said}"
    shutil.rmtree(place)
    return said


def places(calls: int, name: str, mode: str) -> list[int]:
    """Spread over all of them: those of one step lie side by side."""
    wanted = min(calls, PLACES)
    rng = random.Random(f"{name}, {mode}")
    return sorted({rng.randint(1 + i * calls // wanted, (i + 1) * calls // wanted) for i in range(wanted)})


@pytest.mark.timeout(0)
@pytest.mark.parametrize("plane", CONTROLS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_failed_allocation_loses_nothing(lab, folder, scenario, plane):
    if plane == "Python objects" and not interpreter_copes():
        pytest.skip("this interpreter crashes by itself without memory")
    trial = {"scenario": scenario, "plane": plane}
    count = attempt(lab, folder, 0, **trial)
    assert count["raised"] is None and count["calls"] > 0
    for mode, sticky in MODES.items():
        name = f"allocations fail {mode}, {plane}, {scenario}"
        progress = Progress(name)
        done = progress.load() if SOAK else 0
        for nth in places(count["calls"], name, mode):
            if nth > done:
                said = attempt(lab, folder, nth, sticky=sticky, **trial)
                counts = {"hit": said["hits"] > 0, "told the caller": said["raised"] is not None}
                figure(name, "0 lost", runs=1, **counts)
                if SOAK:
                    progress.store(nth)
        progress.clear()
