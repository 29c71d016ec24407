"""Every public name has a signature, a docstring and an example, and the examples run."""

import doctest
import inspect
import re
from pathlib import Path

import pytest
from public_names import ASYNC, PUBLIC, everything

import lsmkv

THINGS = dict(everything())
CALLABLE = [name for name, thing in THINGS.items() if callable(thing)]


def test_methods_and_properties_of_both_planes_are_found():
    assert {
        "lsmkv.open",
        "lsmkv.ClosedError",
        "lsmkv.DB.compact_range",
        "lsmkv.DB.put",
        "lsmkv.DB.readonly",
        "lsmkv.Snapshot.items",
        "lsmkv.Snapshot.multi_get",
        "lsmkv.Iterator.close",
        "lsmkv.BlockedBloom.from_bytes",
        "lsmkv.SSTReader.path",
        "lsmkv.prefixed.PrefixedDB.get",
    } <= set(THINGS)


@pytest.mark.parametrize("name", CALLABLE)
def test_callables_have_a_signature(name):
    assert inspect.signature(THINGS[name])


@pytest.mark.parametrize("name", THINGS)
def test_public_names_have_a_docstring(name):
    text = inspect.getdoc(THINGS[name])
    assert text and text[0].isupper() and "." in text
    assert "--" not in text.splitlines()[:2], "the text signature is part of the docstring"


@pytest.mark.parametrize("name", THINGS)
def test_docstrings_have_an_example(name):
    assert ">>>" in inspect.getdoc(THINGS[name])


@pytest.mark.parametrize("cls", [lsmkv.BlockedBloom, lsmkv.SSTReader, lsmkv.SSTWriter, lsmkv.WriteBatch])
def test_text_signatures_name_the_parameters_of_the_constructor(cls):
    """Cython does not check these signatures."""
    names = list(inspect.signature(cls).parameters)
    for keywords in ([*names, "nonsense"], names):
        try:
            cls(**dict.fromkeys(keywords))
            problem = ""
        except (TypeError, lsmkv.Error) as error:
            problem = str(error)
        assert ("argument" in problem) == (keywords is not names)


EXAMPLES = {test.name: test for test in doctest.DocTestFinder(recurse=False).find(lsmkv, "lsmkv")}
for _name, _thing in THINGS.items():
    EXAMPLES |= {test.name: test for test in doctest.DocTestFinder(recurse=False).find(_thing, _name) if test.examples}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = EXAMPLES[name]
    with lsmkv.open(tmp_path / "example") as db:
        test.globs = {"lsmkv": lsmkv, "db": db}
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


def test_every_name_with_an_example_is_run():
    assert set(THINGS) <= set(EXAMPLES)


def test_every_public_name_is_in_the_reference():
    """`make docs` also checks the methods, in the built site."""
    pages = (Path(__file__).parents[2] / "docs" / "api").glob("*.md")
    named = [name for page in pages for name in re.findall(r"^::: (lsmkv\.\S+)$", page.read_text(), re.MULTILINE)]
    assert PUBLIC.keys() | ASYNC.keys() <= set(named)
    assert len(named) == len(set(named))
