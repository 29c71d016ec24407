"""Every public name that Python defines has a signature and a docstring, and the examples in docstrings run."""

import doctest
import inspect
import types

import pytest

import lsmkv
from lsmkv.prefixed import PrefixedBatch, PrefixedDB, PrefixedIterator, PrefixedSnapshot

PUBLIC = {f"lsmkv.{name}": getattr(lsmkv, name) for name in lsmkv.__all__}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}
CLASSES |= {cls.__name__: cls for cls in (PrefixedBatch, PrefixedDB, PrefixedIterator, PrefixedSnapshot)}


def members(cls):
    """The public methods and properties that Python code of ours defines, inherited ones included."""
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("lsmkv."):
            continue
        found = vars(owner)[name]
        if isinstance(found, property):
            yield name, found.fget
        elif isinstance(found, staticmethod | classmethod):
            yield name, found.__func__
        elif isinstance(found, types.FunctionType):
            yield name, found


def defined_in_python():
    for name, thing in PUBLIC.items():
        if isinstance(thing, types.FunctionType) or (inspect.isclass(thing) and thing.__module__.startswith("lsmkv.")):
            yield name, thing
    for name, cls in CLASSES.items():
        for member, function in members(cls):
            yield f"{name}.{member}", function


THINGS = dict(defined_in_python())


def test_the_list_of_public_names_is_not_empty():
    assert {"lsmkv.open", "lsmkv.DB", "lsmkv.DB.compact_range", "lsmkv.Snapshot.items", "PrefixedDB.get"} <= set(THINGS)


@pytest.mark.parametrize("name", THINGS)
def test_public_names_have_a_signature_and_a_docstring(name):
    assert inspect.signature(THINGS[name])
    text = inspect.getdoc(THINGS[name])
    assert text and text[0].isupper() and "." in text


def methods_with_an_example():
    """All but the small properties and conversions."""
    return [name for name in THINGS if name.split(".")[-2] in ("lsmkv", "DB", "Snapshot", "PrefixedDB")]


@pytest.mark.parametrize("name", methods_with_an_example())
def test_docstrings_have_an_example(name):
    assert ">>>" in inspect.getdoc(THINGS[name])


EXAMPLES = {test.name: test for test in doctest.DocTestFinder(recurse=False).find(lsmkv, "lsmkv")}
for _name, _thing in THINGS.items():
    EXAMPLES |= {test.name: test for test in doctest.DocTestFinder(recurse=False).find(_thing, _name) if test.examples}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = EXAMPLES[name]
    with lsmkv.open(tmp_path / "example") as db:
        test.globs = {"lsmkv": lsmkv, "db": db}
        assert doctest.DocTestRunner().run(test).failed == 0
