"""The Python examples in README and docs run and print what they say; the files and tests that pages name exist."""

import re

import pytest
from examples import PAGES, ROOT, expected_output, name_of, programs, run

NAMED_FILE = re.compile(r"`([\w/.-]+\.(?:py|pyx|pxd|c|sh))`")
NAMED_TEST = re.compile(r"`(test_\w{10,})`")  # shorter ones are calls, such as `test_many`
SOURCES = [
    path for top in ("lsmkv", "lsmkv_ext", "bench", "tools", "tests", ".ci") for path in (ROOT / top).rglob("*.*")
]
TESTS = [path for path in SOURCES if re.fullmatch(r"test_\w+\.py", path.name)]


def headings(page):
    """The anchors of a page's headings, as GitHub and the site name them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ +(.+)$", text, re.MULTILINE))
    return {line.replace(" ", "-") for line in plain}


@pytest.mark.parametrize("page", [page for page in PAGES if programs(page, "python")], ids=name_of)
def test_the_examples_print_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(programs(page, "python"))
    run(code, page.name)
    assert capsys.readouterr().out.splitlines() == expected_output(code)


@pytest.mark.parametrize("page", [page for page in PAGES if programs(page, "py")], ids=name_of)
def test_examples_that_need_another_program_compile(page):
    for code in programs(page, "py"):
        compile(code, page.name, "exec")


def test_the_readme_has_examples():
    assert "lsmkv.open" in "".join(programs(ROOT / "README.md", "python"))


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(1)    # 1\nx = 2  # 2", ["1"]),
        ("print(1)\n# 1\n# 2\n\n# 3", ["1", "2"]),
        ("if x:\n    print(1)\n    # 1\nprint(2)", ["1"]),
    ],
)
def test_output_stands_beside_a_print_or_below_it(code, output):
    assert expected_output(code) == output


def test_every_page_stands_in_the_navigation_of_the_site():
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        # The site has the folder docs alone.
        assert found.is_relative_to(ROOT / "docs") or not page.is_relative_to(ROOT / "docs"), target
        if anchor and found.suffix == ".md":
            assert anchor in headings(found), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_files_and_tests_that_a_page_names_exist(page):
    text = page.read_text()
    # A page may leave the first folders of a path out.
    paths = [f"/{path.relative_to(ROOT)}" for path in SOURCES]
    missing = {name for name in NAMED_FILE.findall(text) if not any(path.endswith(f"/{name}") for path in paths)}
    functions = {name for path in TESTS for name in re.findall(r"^def (\w+)", path.read_text(), re.MULTILINE)}
    assert missing | (set(NAMED_TEST.findall(text)) - functions) == set()
