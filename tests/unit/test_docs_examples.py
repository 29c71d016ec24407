"""The Python examples in README and docs run and print what they say; the files and tests that pages name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# `print(...)  # result`: one line of output.
PRINTED = re.compile(r"^ *print\(.*\) +# (.+)$", re.MULTILINE)

NAMED_FILE = re.compile(r"`([\w/.-]+\.(?:py|pyx|pxd|c|sh))`")
NAMED_TEST = re.compile(r"`(test_\w{10,})`")  # shorter ones are calls, such as `test_many`
SOURCES = [
    path for top in ("lsmkv", "lsmkv_ext", "bench", "tools", "tests", ".ci") for path in (ROOT / top).rglob("*.*")
]
TESTS = [path for path in SOURCES if re.fullmatch(r"test_\w+\.py", path.name)]


def examples(page: Path) -> str:
    return "\n".join(BLOCK.findall(page.read_text()))


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=name_of)
def test_the_examples_print_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = examples(page)
    exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == PRINTED.findall(code)


def test_the_readme_has_examples():
    assert "lsmkv.open" in examples(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_files_and_tests_that_a_page_names_exist(page):
    text = page.read_text()
    # A page may leave the first folders of a path out.
    paths = [f"/{path.relative_to(ROOT)}" for path in SOURCES]
    missing = {name for name in NAMED_FILE.findall(text) if not any(path.endswith(f"/{name}") for path in paths)}
    functions = {name for path in TESTS for name in re.findall(r"^def (\w+)", path.read_text(), re.MULTILINE)}
    assert missing | (set(NAMED_TEST.findall(text)) - functions) == set()
