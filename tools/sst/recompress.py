"""`sst recompress`: compare codecs and block sizes."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Column, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.table import Table, write_table

CODECS = ("none", "lz4")
BLOCK_SIZES = (1024, 4096, 16384, 65536)
COLUMNS = [
    Column("codec", "codec"),
    num("block size", "block_size", units.size),
    num("blocks", "blocks", units.count),
    num("size", "size", units.size),
    num("ratio", "ratio", units.ratio),
]


@declare("sst recompress", example="lsmkv-tool sst recompress table.sst")
@path_argument("file", "FILE")
@click.option("--limit", type=click.IntRange(min=1), default=200_000, show_default=True, help="Entries to compress.")
def recompress(out: Output, file: str, limit: int) -> None:
    """Measure the table's size with each codec and block size, by building tables in a temporary directory."""
    with Table(file) as table:
        pairs = [(key, value) for key, value, _, _ in itertools.islice(table.scan(), limit)]
        seed = table.raw.seed  # decides the hash tags, which are compressed with the block
    raw = sum(len(key) + len(value or b"") for key, value in pairs)
    rows: list[dict[str, Any]] = []
    with Progress("building", len(CODECS) * len(BLOCK_SIZES)) as progress, tempfile.TemporaryDirectory() as directory:
        for codec, block_size in itertools.product(CODECS, BLOCK_SIZES):
            path = str(Path(directory, f"{codec}-{block_size}.sst"))
            write_table(path, pairs, 0.0, block_size, codec, seed)
            with Table(path) as made:
                size, blocks = made.size, made.blocks
            row = {"codec": codec, "block_size": block_size, "blocks": blocks, "size": size}
            rows.append(row | {"ratio": raw / size if size else None})
            progress.step(1, f"{codec} {block_size}")
    note = f"{len(pairs):,} entries, {units.size(raw)} raw; sizes without filter"
    out.rows(rows, COLUMNS, entries=len(pairs), raw=raw, after=lambda printer: printer.line(f"\n{note}"))
