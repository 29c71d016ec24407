"""Every allocation fails once, or from some point on: the answers stay right, and a reopen finds everything."""

from __future__ import annotations

import random
import shutil

import pytest
from soak import CUT, SOAK, figure

from .allocations import SCENARIOS

SAMPLE = max(1, round(16 * CUT))  # places per scenario and mode in `make test`


def attempt(lab, folder, scenario: str, nth: int, sticky: bool = False) -> dict:
    place = folder / str(nth)
    place.mkdir()
    outcome = lab.run("fail_allocation", folder=str(place), scenario=scenario, nth=nth, sticky=sticky)
    assert outcome.ok, f"allocation {nth}: {outcome.words()}"
    said = outcome.value
    assert said["problems"] == [], f"allocation {nth}, {said['place']}: {said}"
    shutil.rmtree(place)
    return said


def places(calls: int, name: str) -> list[int]:
    """Spread over all of them: those of one step lie side by side."""
    if SOAK or calls <= SAMPLE:
        return list(range(1, calls + 1))
    rng = random.Random(name)
    return sorted({rng.randint(1 + i * calls // SAMPLE, (i + 1) * calls // SAMPLE) for i in range(SAMPLE)})


@pytest.mark.timeout(0)
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_failed_allocation_loses_nothing(lab, folder, scenario, sticky):
    count = attempt(lab, folder, scenario, 0)
    assert count["raised"] is None and count["calls"] > 20
    runs = hits = raised = 0
    for nth in places(count["calls"], scenario):
        said = attempt(lab, folder, scenario, nth, sticky)
        runs += 1
        hits += said["hits"] > 0
        raised += said["raised"] is not None
    assert hits > runs // 2
    name = f"allocations fail {'from then on' if sticky else 'once'}, {scenario}"
    figure(name, "0 lost", runs=runs, hit=hits, **{"told the caller": raised})
