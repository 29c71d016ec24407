"""Feeds mutated inputs to one parser:  python -m fuzz.run log --count 100000 --seed 1     (in tests/)

A finding (an exception that is not allowed, over a second, over the memory limit) leaves its input in the
file named with --save, and `--input FILE` runs just that one. After a crash of the process, the same seed
with --keep-last leaves the input that did it. `--distil FOLDER` leaves the shortest input for each different
answer of the parser there: so the corpus was made.
"""

from __future__ import annotations

import argparse
import faulthandler
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from .mutate import Mutator
from .targets import TARGETS, Target, scratch_folder

INPUT_LIMIT = 1.0  # seconds of processor time, so that a busy machine does not count
TOGETHER = 256  # inputs between two looks at the clock and the memory
DEADLINE = 60.0  # the same, for so many of them
MEMORY_LIMIT = 64 << 20  # bytes beyond what the process had before its first input
CORPUS = Path(__file__).with_name("corpus")


class Finding(Exception):
    pass


def examples(name: str, folder: Path) -> list[bytes]:
    """What the writers make, and about as many of the corpus: one for each way to be wrong, and past findings."""
    good = TARGETS[name].examples(folder)
    corpus = [path.read_bytes() for path in sorted(CORPUS.glob(f"{name}-*"))]
    return good * max(1, len(corpus) // len(good)) + corpus


def one(target: Target, data: bytes, folder: Path) -> str:
    """What the parser said of the input: "" if it accepted it."""
    try:
        target.run(data, folder)
        return ""
    except target.errors as error:
        return str(error) or repr(error)
    except Exception as error:
        raise Finding("".join(traceback.format_exception(error))) from error


class Watch:
    """Looks at the clock and at the memory once for many inputs: for each, it would take longer than most parsers."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder
        self.before = peak()
        self.start()

    def start(self) -> None:
        self.recent: list[bytes] = []
        self.began = time.process_time()
        # Ends the process even inside compiled code.
        signal.setitimer(signal.ITIMER_PROF, DEADLINE)

    def look(self) -> None:
        if time.process_time() - self.began > INPUT_LIMIT:
            self._find_the_slow_one()
        if peak() - self.before > MEMORY_LIMIT:
            raise Finding(f"memory grew by {peak() - self.before >> 20} MiB within the last {len(self.recent)} inputs")
        self.start()

    def _find_the_slow_one(self) -> None:
        for data in self.recent:
            began = time.process_time()
            one(self.target, data, self.folder)
            took = time.process_time() - began
            if took > INPUT_LIMIT:
                raise Finding(f"took {took:.1f} s", data)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def kind_of(answer: str) -> str:
    """Answers that differ by a number or by quoted bytes are the same one."""
    return re.sub(r"\d+|b?'.*'|\\?\".*\"|/\S+", "#", answer)


@dataclass
class Tally:
    ran: int = 0
    accepted: int = 0
    shortest: dict[str, bytes] = field(default_factory=dict)  # by kind of answer


def fuzz(
    name: str, seed: int | str, count: int, save: Path, folder: Path, *, keep_last: bool = False, distil: bool = False
) -> Tally:
    target, tally = TARGETS[name], Tally()
    seeds = examples(name, folder)
    for data in seeds:
        one(target, data, folder)
    mutator = Mutator(f"{name}/{seed}", [target.compact(data) for data in seeds])
    watch = Watch(target, folder)
    for number in range(count):
        mutated = target.expand(mutator.next())
        if number % 16 == 15:
            mutator.in_place(mutated, 0, len(mutated))
        if target.seal and number % 4:
            target.seal(mutated)
        data = bytes(mutated)
        if keep_last:
            save.write_bytes(data)
        try:
            answer = one(target, data, folder)
            watch.recent.append(data)
            if len(watch.recent) == TOGETHER or number == count - 1:
                watch.look()
        except Finding as finding:
            what, *slow = finding.args
            save.write_bytes(slow[0] if slow else data)
            raise Finding(f"{name}, seed {seed}, input {number}: {what}") from None
        tally.accepted += not answer
        if distil:
            kind = kind_of(answer)
            if len(data) < len(tally.shortest.get(kind, data + b"?")):
                tally.shortest[kind] = data
    signal.setitimer(signal.ITIMER_PROF, 0)
    tally.ran = count
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--save", type=Path, default=Path("finding"))
    parser.add_argument("--input", type=Path)
    parser.add_argument("--keep-last", action="store_true")
    parser.add_argument("--distil", type=Path)
    given = parser.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    folder = scratch_folder()
    try:
        if given.input:
            print(one(TARGETS[given.target], given.input.read_bytes(), folder) or "accepted")
            return
        how = {"keep_last": given.keep_last, "distil": given.distil is not None}
        tally = fuzz(given.target, given.seed, given.count, given.save, folder, **how)
        for number, (_, data) in enumerate(sorted(tally.shortest.items())):
            given.distil.mkdir(exist_ok=True)
            (given.distil / f"{given.target}-{number:02d}").write_bytes(data)
        print(f"{tally.ran} inputs, {tally.accepted} accepted")
    except Finding as finding:
        sys.exit(str(finding))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
