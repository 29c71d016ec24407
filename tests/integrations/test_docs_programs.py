"""The program on each page of docs/integrations runs as it stands and prints what the page says."""

import os
import subprocess
import sys

import pytest
from examples import ROOT, expected_output, programs

PAGES = sorted((ROOT / "docs" / "integrations").glob("*.md"))


def code(page):
    return "\n".join(programs(page, "py"))


def program(page, tmp_path):
    path = tmp_path / f"{page.stem}_program.py"
    path.write_text(code(page))
    return [sys.executable, path]


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "faust"], ids=lambda page: page.stem)
def test_the_program_prints_what_the_page_says(page, tmp_path):
    run = subprocess.run(program(page, tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    expected = expected_output(code(page))
    assert run.stdout.splitlines() == expected and expected


def test_the_worker_of_the_page_about_faust_counts_words(tmp_path):
    from test_faust import Broker

    broker = Broker("word-counts-counts-changelog")
    broker.send(*[(b"ant", b"ant")] * 3)
    command = [*program(ROOT / "docs" / "integrations" / "faust.md", tmp_path), "worker", "--loglevel=warn"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [*command, "--without-web"],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            env=os.environ | {"KAFKA": f"kafka://{broker.address}"},
        ) as worker,
    ):
        try:
            broker.wait(lambda: "ant 3" in (tmp_path / "log").read_text(), worker)
        finally:
            worker.kill()
    assert list(tmp_path.rglob("counts-0.lsmkv"))
