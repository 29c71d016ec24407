"""`sst build`, `recompress`, `diff`: tables made from text, remade on trial, and compared."""

from __future__ import annotations

import csv
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import click

from lsmkv_tool import keys as notation
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.exits import FINDING, CannotOpen, Usage, opening
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Column, Output, Row, num
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.paths import sst
from lsmkv_tool.sst.table import open_table, write_table

Pair = tuple[bytes, bytes | None]


def _bytes(value: object, where: str) -> bytes:
    if not isinstance(value, str):
        raise Usage(
            f"{where}: keys and values are text (use hex: or base64: for bytes), not {type(value).__name__}"
        )
    try:
        return notation.parse(value)
    except ValueError as error:
        raise Usage(f"{where}: {error}") from error


def from_json_lines(source: TextIO) -> Iterator[Pair]:
    """{"key": ..., "value": ...} per line; a null value is a delete."""
    for n, line in enumerate(source, 1):
        if not line.strip():
            continue
        where = f"line {n}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise Usage(f"{where}: not JSON: {error}") from error
        if not isinstance(row, dict) or "key" not in row or "value" not in row:
            raise Usage(f'{where}: expected {{"key": ..., "value": ...}}')
        yield _bytes(row["key"], where), None if row["value"] is None else _bytes(row["value"], where)


def from_csv(source: TextIO) -> Iterator[Pair]:
    """Two columns; a first line that says key,value is a heading. One column alone is a delete."""
    for n, row in enumerate(csv.reader(source), 1):
        if not row or (n == 1 and row[:2] == ["key", "value"]):
            continue
        if len(row) > 2:
            raise Usage(f"line {n}: {len(row)} columns, expected key,value")
        where = f"line {n}"
        yield _bytes(row[0], where), _bytes(row[1], where) if len(row) == 2 else None


def newest(pairs: Iterable[Pair]) -> list[Pair]:
    """Sorted by key; of a key given twice the later line counts."""
    return sorted(dict(pairs).items())


@declare(sst, example="lsmkv-tool sst build built.sst --from new.jsonl --yes", changes=True)
@path_argument("file", "OUT")
@click.option(
    "--from", "source", type=click.Path(), default="-", help="Input file; - (the default) is stdin."
)
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "csv"]), help="By default from the name, else jsonl."
)
@click.option("--bits-per-key", type=click.FloatRange(0, 100), default=10.0, show_default=True)
@click.option("--block-size", default="4096", show_default=True, help="Raw bytes per data block.")
@click.option("--compression", type=click.Choice(["lz4", "none"]), default="lz4", show_default=True)
def build(
    out: Output,
    file: str,
    source: str,
    kind: str | None,
    bits_per_key: float,
    block_size: str,
    compression: str,
) -> None:
    """Make the table OUT from JSON lines ({"key": ..., "value": ...}) or CSV (key,value), in any order.

    Keys and values are written as on the command line: text, hex:, base64:. A null value (JSON) or a line
    with the key alone (CSV) is a delete. `db ingest` then adds the table to a database.
    """
    kind = kind or ("csv" if source.endswith(".csv") else "jsonl")
    if os.path.lexists(file):
        raise CannotOpen(f"{file} exists; tables are never overwritten", file=file)
    try:
        raw_block = units.parse_size(block_size)
    except ValueError as error:
        raise Usage(f"--block-size: {error}") from error
    out.confirm(f"Write {file}?")
    with Progress("reading"), ExitStack() as stack, opening(source):
        stream = (
            sys.stdin if source == "-" else stack.enter_context(open(source, encoding="utf-8", newline=""))
        )
        try:
            pairs = newest((from_csv if kind == "csv" else from_json_lines)(stream))
        except UnicodeDecodeError as error:
            raise Usage(f"{source} is not UTF-8: {error}") from error
    with Progress("writing"), opening(file):
        write_table(file, pairs, bits_per_key, raw_block, compression)
    size = os.stat(file).st_size
    data = {"file": file, "entries": len(pairs), "deletes": sum(v is None for _, v in pairs), "size": size}
    out.result(data, lambda human: human.line(f"{file}: {len(pairs):,} entries, {units.size(size)}"))


TRIAL_BLOCKS = (1024, 4096, 16384, 65536)


@declare(sst, example="lsmkv-tool sst recompress table.sst")
@path_argument("file", "FILE")
@click.option(
    "--limit", type=click.IntRange(min=1), default=200_000, show_default=True, help="Entries to try with."
)
def recompress(out: Output, file: str, limit: int) -> None:
    """Say what each codec and block size would give, by building trial tables in a temporary folder."""
    with open_table(file) as table:
        pairs = [(key, value) for key, value, _ in itertools.islice(table.scan(), limit)]
        seed = table.raw.seed  # of the hash tags in the blocks, which compress too
    raw = sum(len(key) + len(value or b"") for key, value in pairs)
    rows: list[dict[str, Any]] = []
    with Progress("building", 2 * len(TRIAL_BLOCKS)) as progress, tempfile.TemporaryDirectory() as folder:
        for codec, block in itertools.product(("none", "lz4"), TRIAL_BLOCKS):
            trial = str(Path(folder, f"{codec}-{block}.sst"))
            write_table(trial, pairs, 0.0, block, codec, seed)
            with open_table(trial) as made:
                size, blocks = made.size, made.blocks
            rows.append({"codec": codec, "block_size": block, "blocks": blocks, "size": size})
            progress.step(1, f"{codec} {block}")
    for row in rows:
        row["ratio"] = raw / row["size"] if row["size"] else None
    columns = [
        Column("codec", "codec"),
        num("block size", "block_size", units.size),
        num("blocks", "blocks", units.count),
        num("size", "size", units.size),
        num("ratio", "ratio", units.ratio),
    ]
    note = f"{len(pairs):,} entries, {units.size(raw)} raw; sizes without filter"
    out.rows(rows, columns, entries=len(pairs), raw=raw, after=lambda human: human.line(f"\n{note}"))


def compare(a: Iterator[tuple[bytes, Any, int]], b: Iterator[tuple[bytes, Any, int]]) -> Iterator[Row]:
    """Keys where the two differ, by walking both in order."""
    left, right = next(a, None), next(b, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield {"key": left[0], "side": "first", "first": left[1], "second": None}
            left = next(a, None)
        elif left is None or right[0] < left[0]:
            yield {"key": right[0], "side": "second", "first": None, "second": right[1]}
            right = next(b, None)
        else:
            if left[1] != right[1]:
                yield {"key": left[0], "side": "both", "first": left[1], "second": right[1]}
            left, right = next(a, None), next(b, None)


SIGNS = {"first": "-", "second": "+", "both": "!"}


@declare(sst, example="lsmkv-tool sst diff table.sst table.sst", keys=True, values=True)
@path_argument("first", "FIRST")
@path_argument("second", "SECOND")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many differences.")
def diff(out: Output, first: str, second: str, limit: int | None) -> None:
    """Print where two tables differ: - key only in FIRST, + only in SECOND, ! another value (both are shown).

    Exits 1 if they differ. Sequence numbers are not compared; a delete counts as an entry of its own.
    """

    def rows() -> Iterator[Row]:
        for row in itertools.islice(compare(one.scan(), two.scan()), limit):
            out.exit = FINDING
            yield {
                **row,
                "key": out.key(row["key"]),
                "first": out.value(row["first"]),
                "second": out.value(row["second"]),
            }

    def line(row: Row) -> str:
        values = [row[side] for side in ("first", "second") if row[side] is not None]
        return "\t".join([f"{SIGNS[row['side']]} {row['key']}", *map(str, values)])

    with open_table(first) as one, open_table(second) as two:
        out.stream(rows(), line)
