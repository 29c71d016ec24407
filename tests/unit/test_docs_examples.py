"""The Python examples in README and docs run, and print what they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# `print(...)  # result`: one line of output.
PRINTED = re.compile(r"^ *print\(.*\) +# (.+)$", re.MULTILINE)


def examples(page: Path) -> str:
    return "\n".join(BLOCK.findall(page.read_text()))


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_the_examples_print_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = examples(page)
    exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == PRINTED.findall(code)


def test_the_readme_has_examples():
    assert "lsmkv.open" in examples(ROOT / "README.md")
