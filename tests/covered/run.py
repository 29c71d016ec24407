"""Measures which lines of both planes the tests run:  python -m covered.run [TESTS ...]     (in tests/)

The control plane by coverage.py, the data plane by gcov: in the generated C a comment before each statement names its
line of the .pyx or .pxd file. Builds in build/coverage and leaves the normal build alone. Prints the share of lines of
each file and the lines that never ran; ends with an error if the data plane is below its target.

Processes that a test kills, or that end by `os._exit`, report nothing.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from itertools import groupby
from pathlib import Path

from treecopy import REPOSITORY, copy_tree

TREE = REPOSITORY / "build" / "coverage"
# Each is a run of pytest. Their counts add up, and a run that is cut short loses only its own.
TESTS = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "tests" / "unit").glob("[!_]*"))
TESTS = [path for path in TESTS if "test_" in path or (REPOSITORY / path).is_dir()]
TESTS += [
    "tests/golden",
    "tests/fuzz",
    "tests/crash/test_metamorphic.py",
    "tests/crash/test_corruption.py",
    "tests/model",
]
# Two depend on when garbage is collected and on a limit of time; measuring changes both.
UNSUITED = "changed_meanwhile or leaves_no_lock_taken"
TARGET = 90  # percent of the lines of the data plane

Lines = dict[str, dict[int, int]]  # how often each line ran, by file

SETTINGS = """
[run]
branch = True
source = lsmkv
parallel = True
concurrency = thread
sigterm = True
"""


def build() -> None:
    copy_tree(TREE, lambda path: path.suffix != ".so")
    # ccache keeps no notes for gcov.
    environment = {**os.environ, "LSMKV_COVERAGE": "1", "LSMKV_OPTIMIZE": "0", "CCACHE_DISABLE": "1"}
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j2"], cwd=TREE, env=environment, check=True
    )


def run_tests(paths: list[str]) -> None:
    for old in [*TREE.rglob("*.gcda"), *TREE.glob(".coverage*")]:
        old.unlink()
    (TREE / "coveragerc").write_text(SETTINGS)
    # So that every interpreter that a test starts measures too.
    site = TREE / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TREE}{os.pathsep}{site}",
        "COVERAGE_PROCESS_START": str(TREE / "coveragerc"),
        "COVERAGE_FILE": str(TREE / ".coverage"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "-k", f"not ({UNSUITED})"]
    failed = [path for path in paths if subprocess.run([*command, path], cwd=TREE, env=environment).returncode]
    if failed:
        print(f"tests failed in {', '.join(failed)}; what follows counts the lines that ran")


# The comment that Cython writes before the C of a statement:  /* "lsmkv_ext/batch.pyx":17
STATEMENT = re.compile(r'\s*/\* "(lsmkv_ext/[\w/]+\.p(?:yx|xd))":(\d+)$')
FUNCTION = re.compile(r"\S.*\{$")  # whatever follows it belongs to no statement yet


def statements(source: Path) -> dict[int, tuple[str, int]]:
    """For each line of generated C, the file and line of the statement that it is part of."""
    out: dict[int, tuple[str, int]] = {}
    current: tuple[str, int] | None = None
    for number, text in enumerate(source.read_text().splitlines(), 1):
        if match := STATEMENT.match(text):
            current = match[1], int(match[2])
        elif FUNCTION.match(text):
            current = None
        elif current is not None:
            out[number] = current
    return out


def data_plane() -> Lines:
    """Takes together what gcov says of all modules: the inline functions of a .pxd are in many. A statement ran if any
    of its C did.
    """
    reports = TREE / "gcov"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    notes = [str(path) for path in (TREE / "build").rglob("*.gcno")]
    gcov = ["gcov", "--json-format", "--preserve-paths", *notes]
    subprocess.run(gcov, cwd=reports, check=True, stdout=subprocess.DEVNULL)
    lines: Lines = defaultdict(dict)
    for report in reports.glob("*.gcov.json.gz"):
        for file in json.loads(gzip.decompress(report.read_bytes()))["files"]:
            name = file["file"].removeprefix(f"{TREE}/")
            if name.startswith("lsmkv_ext/") and name.endswith(".c"):
                places = statements(TREE / name)
                for line in file["lines"]:
                    if line["line_number"] in places:
                        path, number = places[line["line_number"]]
                        lines[path][number] = max(lines[path].get(number, 0), line["count"])
    return dict(lines)


def control_plane() -> Lines:
    environment = {**os.environ, "COVERAGE_FILE": str(TREE / ".coverage")}
    coverage = [sys.executable, "-m", "coverage"]
    rc = f"--rcfile={TREE / 'coveragerc'}"
    subprocess.run([*coverage, "combine", "-q", rc, str(TREE)], cwd=TREE, env=environment, check=True)
    subprocess.run([*coverage, "json", "-q", rc, "-o", "python.json"], cwd=TREE, env=environment, check=True)
    files = json.loads((TREE / "python.json").read_text())["files"]
    return {
        name.removeprefix(f"{TREE}/"): {
            **dict.fromkeys(file["executed_lines"], 1),
            **dict.fromkeys(file["missing_lines"], 0),
        }
        for name, file in files.items()
        if not os.path.isabs(name)  # of a process that a test started without this tree
    }


def ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 as "1-3 7"."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def share(counts: list[int]) -> float:
    return 100 * sum(count > 0 for count in counts) / len(counts) if counts else 100.0


def report(title: str, lines: Lines) -> float:
    print(f"\n{title}")
    for name, counted in sorted(lines.items()):
        missing = sorted(number for number, count in counted.items() if not count)
        print(f"{share(list(counted.values())):6.1f} %  {name}  {ranges(missing)}")
    whole = share([count for counted in lines.values() for count in counted.values()])
    print(f"{whole:6.1f} %  of {sum(map(len, lines.values())):,} lines")
    return whole


def main() -> None:
    build()
    run_tests(sys.argv[1:] or TESTS)
    report("control plane", control_plane())
    whole = report("data plane", data_plane())
    sys.exit(whole < TARGET)


if __name__ == "__main__":
    main()
