"""Feeds mutated inputs to one parser:  python -m fuzz.run log --count 100000 --seed 1     (in tests/)

A finding (an exception that is not allowed, over a second, over the memory limit) leaves its input in the
file named with --save, and `--input FILE` runs just that one. After a crash of the process, the same seed
with --keep-last leaves the input that did it.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

from .mutate import Mutator
from .targets import TARGETS, Target, scratch_folder

INPUT_LIMIT = 1.0  # seconds of processor time, so that a busy machine does not count
DEADLINE = 60.0  # the same, for 256 inputs
MEMORY_LIMIT = 64 << 20  # bytes beyond what the process had before its first input
CORPUS = Path(__file__).with_name("corpus")


class Finding(Exception):
    pass


def examples(name: str, folder: Path) -> list[bytes]:
    """What the writers make, plus every input that was once a finding."""
    return TARGETS[name].examples(folder) + [path.read_bytes() for path in sorted(CORPUS.glob(f"{name}-*"))]


def one(target: Target, data: bytes, folder: Path) -> bool:
    """True if the parser accepted the input."""
    began = time.process_time()
    try:
        target.run(data, folder)
        accepted = True
    except target.errors:
        accepted = False
    except Exception as error:
        raise Finding("".join(traceback.format_exception(error))) from error
    took = time.process_time() - began
    if took > INPUT_LIMIT:
        raise Finding(f"took {took:.1f} s")
    return accepted


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def fuzz(
    name: str, seed: int | str, count: int, save: Path, folder: Path, keep_last: bool = False
) -> tuple[int, int]:
    """Returns how many inputs ran and how many of them the parser accepted."""
    target = TARGETS[name]
    seeds = examples(name, folder)
    for data in seeds:
        one(target, data, folder)
    mutator = Mutator(f"{name}/{seed}", seeds)
    before, accepted = peak(), 0
    for number in range(count):
        mutated = mutator.next()
        if target.seal and number % 4:
            target.seal(mutated)
        data = bytes(mutated)
        if keep_last:
            save.write_bytes(data)
        if number % 256 == 0:
            # Ends the process even inside compiled code.
            signal.setitimer(signal.ITIMER_PROF, DEADLINE)
        try:
            accepted += one(target, data, folder)
            if number % 256 == 0 and peak() - before > MEMORY_LIMIT:
                raise Finding(f"memory grew by {peak() - before >> 20} MiB within the last 256 inputs")
        except Finding as finding:
            save.write_bytes(data)
            raise Finding(f"{name}, seed {seed}, input {number}: {finding}") from None
    signal.setitimer(signal.ITIMER_PROF, 0)
    return count, accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--save", type=Path, default=Path("finding"))
    parser.add_argument("--input", type=Path)
    parser.add_argument("--keep-last", action="store_true")
    given = parser.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    folder = scratch_folder()
    try:
        if given.input:
            print("accepted" if one(TARGETS[given.target], given.input.read_bytes(), folder) else "refused")
        else:
            call = (given.target, given.seed, given.count, given.save, folder, given.keep_last)
            ran, accepted = fuzz(*call)
            print(f"{ran} inputs, {accepted} accepted")
    except Finding as finding:
        sys.exit(str(finding))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
