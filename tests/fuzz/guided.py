"""Coverage-guided fuzzing of the parsers by atheris:  python -m fuzz.guided [TARGET ...] --seconds 60    (in tests/)

Builds the modules that parse with clang, AddressSanitizer and libFuzzer's counters in build/guided, and fuzzes each
target of `targets.py` in a process of its own. What libFuzzer finds worth keeping stays in build/guided/corpus for the
next run. A finding is left in build/guided/findings and belongs into `corpus`; `python -m fuzz.run TARGET --input FILE`
runs just that one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import soak
from treecopy import REPOSITORY, copy_tree

FOLDER = REPOSITORY / "build" / "guided"
TREE, CORPUS, FINDINGS = FOLDER / "tree", FOLDER / "corpus", FOLDER / "findings"
LARGEST = 1 << 16  # bytes of an input
SLOWEST = 10  # seconds

# The modules of the data plane that read the bytes of files. Those of the control plane are instrumented at import.
PARSERS = [
    *("batch", "block.block", "block.iterator", "compaction.job", "filter.bloom", "filter.format", "memtable.replay"),
    *("port.sync_slots", "table.format", "table.iterator", "table.open", "table.reader", "table.table"),
    *("table.tombstones", "wal.dump", "wal.reader", "wal.sync_watermark"),
]


def is_parser(path: Path) -> bool:
    name = ".".join(path.relative_to(REPOSITORY).parts).split(".cpython-")[0]
    return name.removeprefix("lsmkv_ext.") in PARSERS


def build() -> None:
    if shutil.which("clang") is None:
        sys.exit("guided fuzzing needs clang")
    copy_tree(TREE, lambda path: path.suffix != ".so" or not is_parser(path))
    environment = {
        **os.environ,
        "CC": "clang",
        "CFLAGS": "-fsanitize=address,fuzzer-no-link -Wno-unknown-warning-option",
        # Linked without the runtimes: the library that is preloaded has them.
        "LDSHARED": "clang -shared",
        "LSMKV_ONLY": ",".join(f"lsmkv_ext.{name}" for name in PARSERS),
        "LSMKV_OPTIMIZE": "1",
    }
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j2"]
    subprocess.run(command, cwd=TREE, env=environment, check=True)


def fuzz(name: str, seconds: int) -> int:
    """Fuzzes one target in a child; returns how many inputs it ran, or ends with its report."""
    import atheris

    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    FINDINGS.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(TREE),
        "LD_PRELOAD": str(Path(atheris.path()) / "asan_with_fuzzer.so"),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    }
    options = [f"-max_total_time={seconds}", f"-max_len={LARGEST}", f"-timeout={SLOWEST}", "-print_final_stats=1"]
    options += ["-rss_limit_mb=4096", f"-artifact_prefix={FINDINGS}/{name}-", str(corpus)]
    command = [sys.executable, "-m", "fuzz.guided", "--child", name, *options]
    child = subprocess.run(command, cwd=TREE / "tests", env=environment, capture_output=True, text=True, check=False)
    report = child.stdout + child.stderr
    ran = re.search(r"number_of_executed_units: (\d+)", report)
    if child.returncode or ran is None:
        sys.exit(f"{name}: {report[-6000:]}")
    edges = re.findall(r"cov: (\d+)", report)
    print(f"{name}: {int(ran[1]):,} inputs, {edges[-1] if edges else 0} edges, 0 findings", flush=True)
    return int(ran[1])


def child(name: str, options: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["lsmkv.options", "lsmkv.version", "lsmkv.files", "lsmkv.filenames"]):
        from . import run, targets

    target, folder = targets.TARGETS[name], targets.scratch_folder()
    for number, data in enumerate(run.examples(name, folder)):
        (Path(options[-1]) / f"example-{number:03d}").write_bytes(data)

    def mutate(data: bytes, limit: int, seed: int) -> bytes:
        mutated = target.expand(bytearray(atheris.Mutate(target.compact(data), limit)))
        if target.seal and seed % 4:
            target.seal(mutated)
        return bytes(mutated[:limit])

    # An exception that the target does not allow is a `Finding`, and ends the run.
    atheris.Setup(["guided", *options], lambda data: run.one(target, data, folder) and None, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    from .targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=list(TARGETS))
    parser.add_argument("--seconds", type=int, default=120)
    given = parser.parse_args()
    build()
    for name in given.targets or TARGETS:
        soak.figure(f"guided fuzzing, {name}", "0 findings", inputs=fuzz(name, given.seconds))


if __name__ == "__main__":
    main()
