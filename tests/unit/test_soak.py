"""An interrupted soak continues where it stopped."""

import pytest
import soak


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "FIGURES", tmp_path / "figures.jsonl")
    monkeypatch.setattr(soak, "PASSED", tmp_path / "soak-passed")
    monkeypatch.setattr(soak, "SOAK", True)
    monkeypatch.setattr(soak, "COUNTED", True)


def half_a_soak(monkeypatch):
    soak.start()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/a.py::test[with space] (call)")
    soak.figure("kills", "0 lost", cycles=3)
    soak.note_passed("tests/a.py::test[with space]")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/b.py::test (call)")
    soak.figure("kills", "0 lost", cycles=4)


def test_figures_of_tests_that_run_again_are_counted_once(monkeypatch):
    half_a_soak(monkeypatch)
    assert soak.summary() == ["kills  7 cycles: 0 lost"]
    soak.start()
    assert soak.passed() == {"tests/a.py::test[with space]"}
    assert soak.summary() == ["kills  3 cycles: 0 lost"]


@pytest.mark.parametrize("change", ["SCALE", "code"])
def test_another_soak_starts_anew(monkeypatch, change, tmp_path):
    half_a_soak(monkeypatch)
    if change == "SCALE":
        monkeypatch.setattr(soak, "SCALE", 0.5)
    else:
        monkeypatch.setattr(soak, "ROOT", tmp_path)
    assert soak.passed() == set()
    soak.start()
    assert soak.summary() == []
    soak.note_passed("tests/c.py::test")
    assert soak.passed() == {"tests/c.py::test"}
