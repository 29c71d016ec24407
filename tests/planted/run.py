"""Shows which instrument notices each known mistake, and how fast:  python -m planted.run [NAME ...]     (in tests/)

Plants one mistake at a time in a copy of the tree and runs the instruments named for it until one fails. Results go to
build/planted/results.jsonl. A run tries the mistakes without a result, or whose file has changed since. `--table`
prints the results for docs/durability.md. With LSMKV_INTEGRATIONS=1 it tries those of integrations, and no others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import soak

from .catalogue import INSTRUMENTS, MISTAKES, Mistake
from .tree import FOLDER, copied, environment, plant

RESULTS = FOLDER / "results.jsonl"
TEST_LIMIT = 120  # seconds
INTEGRATION_LIMIT = 300  # clusters start slowly
INSTRUMENT_LIMIT = 600
PASSED, FAILED, INTERRUPTED = 0, 1, 2  # exit codes of pytest


class Broken(Exception):
    """The tree or the instrument does not work, so the result would say nothing."""


@dataclass(frozen=True)
class Result:
    mistake: str  # "": none was planted
    digest: str
    caught_by: str | None  # instrument
    test: str | None
    seconds: float | None  # from the start of the instrument to its failure
    missed_by: tuple[str, ...]
    message: str = ""  # of the failure


class Failure(NamedTuple):
    test: str
    message: str


def first_failure(report: Path) -> Failure | None:
    """The test that failed; None if none did. A check after a test counts as part of it, any other error does not."""
    for case in ElementTree.parse(report).iter("testcase"):
        errors = (error for error in case.findall("error") if "failed on teardown" in error.get("message", ""))
        failure = next(iter((*case.findall("failure"), *errors)), None)
        if failure is not None:
            test = f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}"
            return Failure(test, failure.get("message", "")[:300])
    return None


def run_instrument(name: str, tree: Path, workers: int = 2) -> Failure | None:
    """The first test of the instrument that fails; None if all pass."""
    report = tree / "report.xml"
    words = INSTRUMENTS[name]
    settings = dict(word.split("=", 1) for word in words if word.startswith("LSMKV_"))
    arguments = [word for word in words if not word.startswith("LSMKV_")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-n",
        str(workers),
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
    ]
    limit = INTEGRATION_LIMIT if "LSMKV_INTEGRATIONS" in settings else TEST_LIMIT
    command += ["-o", f"timeout={limit}", *arguments]
    try:
        outcome = subprocess.run(
            command,
            cwd=tree,
            env={**environment(tree), **settings},
            capture_output=True,
            text=True,
            timeout=INSTRUMENT_LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"{name} did not end within {INSTRUMENT_LIMIT} s") from None
    # pytest-xdist calls a run that -x ended interrupted, like one whose tests cannot be imported.
    failure = first_failure(report) if outcome.returncode in (PASSED, FAILED, INTERRUPTED) else None
    if failure is None and outcome.returncode != PASSED:
        raise Broken(
            f"{name}: pytest ended with {outcome.returncode}\n{outcome.stdout[-4000:]}{outcome.stderr[-4000:]}"
        )
    return failure


def try_mistake(mistake: Mistake, workers: int = 2) -> Result:
    missed: list[str] = []
    with copied(mistake.name) as tree:
        try:
            plant(mistake, tree)
        except subprocess.CalledProcessError as error:
            raise Broken(f"{mistake.name}: {error.stdout.decode()}{error.stderr.decode()}") from error
        for name in mistake.caught_by:
            began = time.monotonic()
            failure = run_instrument(name, tree, workers)
            if failure is not None:
                seconds = round(time.monotonic() - began, 1)
                return Result(
                    mistake.name, mistake.digest(), name, failure.test, seconds, tuple(missed), failure.message
                )
            missed.append(name)
    return Result(mistake.name, mistake.digest(), None, None, None, tuple(missed))


def load() -> dict[str, Result]:
    """The last result of each mistake that is still as it was tried."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    results = {result.mistake: result for result in (Result(**json.loads(line)) for line in lines)}
    return {
        name: results[name] for name, m in MISTAKES.items() if name in results and results[name].digest == m.digest()
    }


def store(result: Result) -> None:
    with open(RESULTS, "a") as file:
        file.write(json.dumps(asdict(result)) + "\n")
    soak.figure("planted mistakes", "caught" if result.caught_by else "MISSED", mistakes=1)


def check_instruments(names: list[str]) -> None:
    """An instrument that fails without a mistake notices nothing."""
    with copied("without a mistake") as tree:
        for name in names:
            failure = run_instrument(name, tree)
            if failure is not None:
                raise Broken(f"{name} fails without a mistake: {failure}")
            print(f"{name}: passes without a mistake", flush=True)


def describe(result: Result) -> str:
    missed = f" (not by {', '.join(result.missed_by)})" if result.missed_by else ""
    if result.caught_by is None:
        return f"MISSED  {result.mistake}{missed}"
    message = " ".join(result.message.split())[:120]
    return f"{result.seconds:6.1f} s  {result.mistake}: {result.caught_by}, {result.test}{missed}\n          {message}"


def table(results: Iterable[Result]) -> list[str]:
    lines = ["| mistake | noticed by | seconds |", "|---|---|---|"]
    for result in results:
        test = f"{result.caught_by}: `{(result.test or '').split('::')[-1].split('[')[0]}`"
        lines.append(f"| {result.mistake} | {test if result.caught_by else '**nothing**'} | {result.seconds or ''} |")
    return lines


def matches(mistake: Mistake, parts: list[str]) -> bool:
    return any(part in mistake.name for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of the name of a mistake; again if it was tried")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    done = load()
    if given.table:
        print("\n".join(table(done.values())))
        return
    integrations = os.environ.get("LSMKV_INTEGRATIONS") == "1"
    possible = [m for m in MISTAKES.values() if m.of_integration == integrations]
    chosen = [m for m in possible if (matches(m, given.names) if given.names else m.name not in done)]
    broken = False
    for mistake in chosen:
        try:
            result = done[mistake.name] = try_mistake(mistake)
        except Broken as error:
            broken = True
            print(f"BROKEN  {mistake.name}: {error}", flush=True)
            continue
        store(result)
        print(describe(result), flush=True)
    if chosen:
        check_instruments(sorted({done[m.name].caught_by or "" for m in chosen if m.name in done} - {""}))
    caught = sum(m.name in done and done[m.name].caught_by is not None for m in possible)
    print(f"{caught} of {len(possible)} mistakes were noticed")
    sys.exit(broken or caught < len(possible))


if __name__ == "__main__":
    main()
