"""`.ci/check_reentrancy.py` finds the mistake that it is for, in each of its forms, and none in the sources."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "check_reentrancy.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the lint is not part of an sdist")


@pytest.fixture(scope="module")
def lint():
    spec = importlib.util.spec_from_file_location("check_reentrancy", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(lint) -> dict[str, str]:
    paths = [path for path in lint.ROOT.rglob("*") if path.suffix in {".pyx", ".pxd"}]
    return {str(path.relative_to(lint.ROOT)): path.read_text() for path in paths}


def test_the_sources_are_clean(lint, sources):
    assert lint.check(sources) == []


# File, sound text, text with the mistake, what is reported.
PLANTED = {
    "a buffer after the check": (
        "store.pyx",
        "        if op == OP_DELETE:\n            self.check_writable()\n",
        "        if op == OP_DELETE:\n",
        "write_op: write_one",
    ),
    "the bounds of a range after the check": (
        "store.pyx",
        "        self.check_writable()\n        if first < last:\n",
        "        if first < last:\n",
        "delete_range: write_batch",
    ),
    "the truth of an argument after the check": (
        "engine.pyx",
        "    cdef int write_payload(self, const BatchC* b, int sync, WriteCondition condition=None) except -1:",
        "    cdef int write_payload(self, const BatchC* b, object wish, WriteCondition condition=None) except -1:\n"
        "        if wish:\n            pass",
        "write_payload: begin_write",
    ),
    "a collection between two items": (
        "read/iterator.pyx",
        "                check_again(self)       # making the item may have run a collection\n",
        "",
        "take: step",
    ),
    "a hook after the state was taken": (
        "reader.pyx",
        "        it.attach(self, self.open_state(&snapshot), snapshot, self.held_now)\n",
        "        state = self.open_state(&snapshot)\n        self._on_seek_debt()\n"
        "        it.attach(self, state, snapshot, self.held_now)\n",
        "iterator: attach",
    ),
    "objects made while in flight": (
        "read/explain.pyx",
        "            handle.inflight -= 1\n",
        '            steps = {"steps": step_dicts(state, &trace)}\n            handle.inflight -= 1\n',
        "explain_lookup: step_dicts() may run Python code while the call is in flight",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(lint, sources, name):
    path, sound, mistaken, report = PLANTED[name]
    assert sources[path].count(sound) == 1
    problems = lint.check({**sources, path: sources[path].replace(sound, mistaken)})
    assert any(report in problem for problem in problems), problems
