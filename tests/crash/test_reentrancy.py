"""Calls in the middle of calls: only errors with names, no signal, and right answers afterwards."""

from __future__ import annotations

import inspect

import pytest
from soak import figure, shards, share

import lsmkv

from .reentrancy import CASES, CLASSES, DATA

SHARDS = shards(20)
TRIALS = share(40, 5000, SHARDS)
PER_CHILD = 20
# Defined by every class, and called by none of its users.
UNCALLED = {
    *("__new__", "__reduce__", "__reduce_cython__", "__setstate_cython__", "__setstate__", "__getstate__"),
    *("__init__", "__del__", "__class_getitem__", "__init_subclass__", "__subclasshook__", "__doc__", "__module__"),
    *("__dict__", "__weakref__", "__pyx_vtable__", "__abstractmethods__", "__annotations__", "__slots__"),
    *("__parameters__", "__orig_bases__", "__firstlineno__", "__static_attributes__", "__hash__"),
    *("__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__match_args__", "__type_params__"),
}


def public_calls(cls: type) -> set[str]:
    """The public names of a class, and the special methods that the project defines for it."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("lsmkv")]
    special = {name for base in ours for name in vars(base) if name.startswith("__")} - UNCALLED
    return {name for name in dir(cls) if not name.startswith("_")} | special


def test_every_public_call_has_a_case():
    wanted = {f"{name}.{call}" for name, cls in CLASSES.items() for call in public_calls(cls)}
    for name in lsmkv.__all__:
        thing = getattr(lsmkv, name)
        if not inspect.isclass(thing):
            wanted.add(name)
        elif not issubclass(thing, Exception) and name not in DATA:
            assert name in CLASSES, f"{name}: a class without cases"
    assert wanted - CASES.keys() == set()
    assert {name for name in CASES.keys() - wanted if not name.endswith(("__init__", "__hash__"))} == set()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", SHARDS)
def test_a_call_in_the_middle_of_another_does_no_harm(lab, folder, shard):
    acted = 0
    for first in range(shard * TRIALS, (shard + 1) * TRIALS, PER_CHILD):
        seeds = list(range(first, min(first + PER_CHILD, (shard + 1) * TRIALS)))
        place = folder / str(first)
        place.mkdir()
        outcome = lab.run("reenter", folder=str(place), seeds=seeds, timeout=120)
        assert outcome.ok, f"{(place / 'running').read_text()}: {outcome.words()}"
        assert outcome.value["problems"] == []
        acted += outcome.value["acted"]
    figure("calls in the middle of calls", "0 signals, errors with names, right answers", trials=TRIALS, acted=acted)
