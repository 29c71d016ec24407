"""`sst build`: make a table from text."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import refuse_existing
from lsmkv_tool.exits import Usage, open_errors
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.table import write_table
from lsmkv_tool.sst.text_input import Pair, read_csv, read_json_lines


def read_pairs(source: str, kind: str) -> list[Pair]:
    """Return the pairs in `source`, sorted by key. If a key occurs twice, the later line wins."""
    with ExitStack() as stack, open_errors(source):
        stream = sys.stdin if source == "-" else stack.enter_context(open(source, encoding="utf-8", newline=""))
        try:
            return sorted(dict((read_csv if kind == "csv" else read_json_lines)(stream)).items())
        except UnicodeDecodeError as error:
            raise Usage(f"{source} is not UTF-8: {error}") from error


@declare("sst build", example="lsmkv-tool sst build built.sst --from new.jsonl --yes", writes=True)
@path_argument("file", "OUT")
@click.option("--from", "source", type=click.Path(), default="-", help="Input file; - (the default) is stdin.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonl", "csv"]),
    help="Input format; by default csv for *.csv, jsonl otherwise.",
)
@click.option("--bits-per-key", type=params.FloatRange(0, 100), default=10.0, show_default=True)
@click.option(
    "--block-size", type=params.SIZE, default="4096", show_default=True, help="Data block size before compression."
)
@click.option("--compression", type=click.Choice(["lz4", "zstd", "none"]), default="lz4", show_default=True)
def build(
    out: Output, file: str, source: str, kind: str | None, bits_per_key: float, block_size: int, compression: str
) -> None:
    """Make the table OUT from JSON lines ({"key": ..., "value": ...}) or CSV (key,value), in any order.

    Keys and values use the command line's notations: text, hex:, base64:. A null value (JSON) or a line with
    only a key (CSV) is a delete. `db ingest` adds the table to a database.
    """
    refuse_existing(file, "sst build does not overwrite tables")
    out.confirm(f"Write {file}?")
    with Progress("reading"):
        pairs = read_pairs(source, kind or ("csv" if source.endswith(".csv") else "jsonl"))
    with Progress("writing"), open_errors(file):
        write_table(file, pairs, bits_per_key, block_size, compression)
    size = os.stat(file).st_size
    data = {"file": file, "entries": len(pairs), "deletes": sum(v is None for _, v in pairs), "size": size}
    out.result(data, lambda printer: printer.line(f"{file}: {len(pairs):,} entries, {units.size(size)}"))
