"""Every planted mistake can still be planted, and some are tried. `make planted` tries all."""

from __future__ import annotations

import shutil

import pytest
from treecopy import REPOSITORY

from .catalogue import INSTRUMENTS, MISTAKES
from .run import first_failure, try_mistake

# Without a build, and noticed within seconds.
TRIED = ["L0 is in the wrong order", "outputs are deleted after a durable append"]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_fits_the_source(name, tmp_path):
    mistake = MISTAKES[name]
    copy = tmp_path / mistake.file
    copy.parent.mkdir(parents=True)
    shutil.copy2(REPOSITORY / mistake.file, copy)
    mistake.plant(tmp_path)
    assert copy.read_text() != (REPOSITORY / mistake.file).read_text()
    assert set(mistake.caught_by) <= set(INSTRUMENTS)


def test_a_text_that_occurs_twice_is_refused(tmp_path):
    mistake = next(iter(MISTAKES.values()))
    copy = tmp_path / mistake.file
    copy.parent.mkdir(parents=True)
    copy.write_text((REPOSITORY / mistake.file).read_text() * 2)
    with pytest.raises(ValueError, match="2 places"):
        mistake.plant(tmp_path)


def test_an_error_outside_of_a_test_is_no_failure(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text('<testsuite><testcase classname="a" name="b"><error message="import"/></testcase></testsuite>')
    assert first_failure(report) is None


def test_a_check_after_a_test_is_part_of_it(tmp_path):
    error = '<error message="failed on teardown with &quot;AssertionError: 1&quot;"/>'
    report = tmp_path / "report.xml"
    report.write_text(f'<testsuite><testcase classname="a" name="b">{error}</testcase></testsuite>')
    assert first_failure(report) == ("a::b", 'failed on teardown with "AssertionError: 1"')


@pytest.mark.parametrize("name", TRIED)
def test_an_instrument_notices_a_mistake(name):
    mistake = MISTAKES[name]
    result = try_mistake(mistake, workers=0)
    assert result.caught_by == mistake.caught_by[0]
