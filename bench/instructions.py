"""Instructions per operation, counted by callgrind: the same on a busy machine as on an idle one.

    python -m lsmkv_bench.instructions [--paths put,get-table] [--count N] [--json]
    python -m lsmkv_bench.instructions --python OTHER/.venv/bin/python      a second build beside this one

Each path runs twice, with N and with 2 N operations after the same preparation; the difference is divided by N. The
Python loop around the call is part of the figure.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import lsmkv

KEYS = 50_000  # in the database that the read paths use
VALUE = b"v" * 100
NAMED = "named"  # a keyspace
COLLECTED = re.compile(r"Collected : (\d+)")
MISSING = re.compile(r"^(TypeError|AttributeError): ", re.MULTILINE)

Operation = Callable[[int], None]


def _key(i: int) -> bytes:
    return b"%016d" % (i * 2)


def _draws(count: int, limit: int = KEYS) -> list[int]:
    return random.Random(1).choices(range(limit), k=count)


def prepare(path: Path) -> None:
    """Write the database of the read paths: two keyspaces, one level each, keys of 16 bytes, values of 100."""
    with lsmkv.open(path, wal=None) as db:
        # Builds without keyspaces can be compared too; they skip the paths that need one.
        for keyspace in (db, db.keyspace(NAMED)) if hasattr(db, "keyspace") else (db,):
            for start in range(0, KEYS, 1000):
                with keyspace.write_batch() as batch:
                    for i in range(start, start + 1000):
                        batch.put(_key(i), VALUE)
            keyspace.compact_range()


def _each(call: Callable[[bytes], Any], keys: Iterable[bytes]) -> None:
    for key in keys:
        call(key)


def _put(stack: ExitStack, path: Path) -> Operation:
    db = stack.enter_context(lsmkv.open(path / "new"))

    def run(count: int) -> None:
        for key in [_key(i) for i in _draws(count, 1 << 40)]:
            db.put(key, VALUE)

    return run


def _put_ttl(stack: ExitStack, path: Path) -> Operation:
    db = stack.enter_context(lsmkv.open(path / "new"))

    def run(count: int) -> None:
        for key in [_key(i) for i in _draws(count, 1 << 40)]:
            db.put(key, VALUE, ttl=3600)

    return run


def _write_batch(stack: ExitStack, path: Path) -> Operation:
    db = stack.enter_context(lsmkv.open(path / "new"))

    def run(count: int) -> None:
        with db.write_batch() as batch:
            for key in [_key(i) for i in _draws(count, 1 << 40)]:
                batch.put(key, VALUE)

    return run


def _get_memtable(stack: ExitStack, path: Path, keyspace: str | None = None) -> Operation:
    db = _keyspace(stack.enter_context(lsmkv.open(path / "new")), keyspace)
    for i in range(5000):
        db.put(_key(i), VALUE)
    return lambda count: _each(db.get, [_key(i) for i in _draws(count, 5000)])


def _keyspace(db: lsmkv.DB, name: str | None) -> lsmkv.DB | lsmkv.Keyspace:
    return db if name is None else db.keyspace(name)


def _open_reader(stack: ExitStack, path: Path, keyspace: str | None = None, **options: Any) -> Any:
    db = _keyspace(stack.enter_context(lsmkv.open(path / "tables", "r", **options)), keyspace)
    for _ in db.items():
        pass  # the blocks are cached
    return db


def _get_table(stack: ExitStack, path: Path, keyspace: str | None = None) -> Operation:
    db = _open_reader(stack, path, keyspace, row_cache_size=0)
    return lambda count: _each(db.get, [_key(i) for i in _draws(count)])


def _get_row_cache(stack: ExitStack, path: Path, keyspace: str | None = None) -> Operation:
    db = _open_reader(stack, path, keyspace)
    hot = [_key(i) for i in _draws(100)]
    for _ in range(4):
        _each(db.get, hot)
    return lambda count: _each(db.get, (hot * (count // len(hot) + 1))[:count])


def _get_miss(stack: ExitStack, path: Path) -> Operation:
    db = _open_reader(stack, path)
    return lambda count: _each(db.get, [b"%016d" % (i * 2 + 1) for i in _draws(count)])


def _multi_get(stack: ExitStack, path: Path) -> Operation:
    db = _open_reader(stack, path, row_cache_size=0)

    def run(count: int) -> None:
        keys = [_key(i) for i in _draws(count)]
        for start in range(0, count, 100):
            db.multi_get(keys[start : start + 100])

    return run


def _iterator_step(stack: ExitStack, path: Path) -> Operation:
    db = _open_reader(stack, path)

    def run(count: int) -> None:
        steps = iter(db.items())
        for _ in range(count):
            next(steps)

    return run


def _seek(stack: ExitStack, path: Path) -> Operation:
    db = _open_reader(stack, path)
    cursor = stack.enter_context(db.cursor())
    return lambda count: _each(cursor.seek, [_key(i) for i in _draws(count)])


# "-named": in a named keyspace.
PATHS: dict[str, Callable[[ExitStack, Path], Operation]] = {
    "put": _put,
    "put-ttl": _put_ttl,
    "batch-put": _write_batch,
    "get-memtable": _get_memtable,
    "get-row-cache": _get_row_cache,
    "get-table": _get_table,
    "get-memtable-named": partial(_get_memtable, keyspace=NAMED),
    "get-row-cache-named": partial(_get_row_cache, keyspace=NAMED),
    "get-table-named": partial(_get_table, keyspace=NAMED),
    "get-miss": _get_miss,
    "multi-get": _multi_get,
    "iterator-step": _iterator_step,
    "seek": _seek,
}


def run_path(name: str, path: Path, count: int) -> None:
    with ExitStack() as stack:
        PATHS[name](stack, path)(count)


def _instructions(python: str, name: str, tables: Path, count: int) -> int | None:
    """None if an older build does not have the call."""
    with tempfile.TemporaryDirectory() as scratch:
        os.symlink(tables, Path(scratch) / "tables")
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        result = subprocess.run(
            [*valgrind, python, __file__, "--run", name, scratch, str(count)],
            env=os.environ | {"PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
    found = COLLECTED.search(result.stderr)
    if result.returncode and python != sys.executable and MISSING.search(result.stderr):
        return None
    if result.returncode or not found:
        raise SystemExit(f"{name}: {result.stderr[-2000:]}")
    return int(found[1])


def _per_operation(python: str, name: str, tables: Path, count: int) -> int | None:
    once = _instructions(python, name, tables, count)
    twice = None if once is None else _instructions(python, name, tables, 2 * count)
    return None if once is None or twice is None else round((twice - once) / count)


def measure(scratch: Path, paths: Iterable[str], count: int, pythons: list[str]) -> list[dict[str, Any]]:
    """One row per path: the instructions of one operation for each of `pythons`."""
    tables = {python: scratch / str(number) for number, python in enumerate(pythons)}
    for python, path in tables.items():  # by its own build, which may not read the format of another
        subprocess.run([python, __file__, "--prepare", str(path)], check=True)
    rows = []
    for name in paths:
        counts = [_per_operation(python, name, path, count) for python, path in tables.items()]
        rows.append({"path": name, "instructions": counts})
    return rows


def _beside(mine: int, other: int | None) -> str:
    return f"{other:>10} {mine / other:>7.3f}x" if other else f"{'-':>10}"


def _show(figures: dict[str, Any]) -> None:
    for row in figures["rows"]:
        mine, *others = row["instructions"]
        print(f"{row['path']:<16}{mine:>8}" + "".join(_beside(mine, other) for other in others))


def main(argv: list[str] | None = None) -> None:
    from lsmkv_bench.standalone import make_parser, print_figures

    parser = make_parser(__doc__)
    parser.add_argument("--paths", default=",".join(PATHS), help="comma-separated (all)")
    parser.add_argument("--count", type=int, default=5000, help="operations (5000)")
    parser.add_argument("--python", action="append", default=[], help="interpreter of another build, to compare with")
    arguments = parser.parse_args(argv)
    paths = arguments.paths.split(",")
    if unknown := [name for name in paths if name not in PATHS]:
        parser.error(f"unknown path {unknown[0]!r}; the paths are {', '.join(PATHS)}")
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(Path(scratch), paths, arguments.count, [sys.executable, *arguments.python])
    print_figures({"count": arguments.count, "rows": rows}, arguments.json, _show)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--prepare"]:
        prepare(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--run"]:
        run_path(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
