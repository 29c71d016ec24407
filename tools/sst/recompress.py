"""`sst recompress`: compare codecs and block sizes."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Column, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.table import Table
from lsmkv_tool.tables import table_paths

MIB = 1 << 20
CODECS = (("none", 0), ("lz4", 0), ("zstd", 1), ("zstd", 3), ("zstd", 9))
BLOCK_SIZES = (1024, 4096, 16384, 65536)
FRAME_TRAILER = 9
RUNS = 32  # places of a table that a sample is taken from
Row = tuple[bytes, bytes | None, int]  # key, value or None, sequence number

COLUMNS = [
    Column("codec", "codec"),
    num("level", "level"),
    num("block size", "block_size", units.size),
    num("blocks", "blocks", units.count, rank=1),
    num("size", "size", units.size),
    num("ratio", "ratio", units.ratio),
    num("compress per MiB", "compress_ns", units.duration),
    num("decompress per MiB", "decompress_ns", units.duration),
]


@dataclass
class Blocks:
    """Uncompressed data blocks, one after the other."""

    data: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)


def sample_of(table: Table, limit: int) -> Iterator[Row]:
    """Yield at most about `limit` entries, from places spread over the table."""
    if table.entries <= limit:
        starts: Sequence[bytes | None] = [None]
        bounds: list[bytes] = []
    else:
        bounds = table.raw.separators()
        starts = [None, *(bounds[i * len(bounds) // RUNS] + b"\0" for i in range(1, RUNS) if len(bounds) >= RUNS)]
    for start, stop in itertools.pairwise([*starts, None]):
        for key, value, seq, _ in itertools.islice(table.scan(start, stop), max(1, limit // len(starts))):
            yield key, value, seq


def add_blocks(blocks: Blocks, rows: Sequence[Row], block_size: int, seed: int, directory: str) -> None:
    """Add the blocks of a table that is made of `rows`. `seed` decides the hash tags, which are compressed too."""
    from lsmkv_ext.table.sst_writer import SSTWriter

    path = Path(directory, "sample.sst")
    with SSTWriter(path, bits_per_key=0, block_size=block_size, compression=None, seed=seed) as writer:
        for key, value, seq in rows:
            if value is None:
                writer.delete(key, seq=seq)
            else:
                writer.put(key, value, seq=seq)
    with Table(str(path)) as table:
        layout = table.raw.block_layout()
    data = path.read_bytes()
    for block in layout:
        blocks.data += data[block["offset"] : block["offset"] + block["raw_size"]]
        blocks.sizes.append(block["raw_size"])
    path.unlink()


def row_of(blocks: Blocks, codec: str, level: int, block_size: int, scale: float, raw: int) -> dict[str, Any]:
    from lsmkv_ext.port.compression import measure

    data = bytes(blocks.data)
    stored, compress_ns, decompress_ns = measure(None if codec == "none" else codec, data, blocks.sizes, level)
    size = stored + FRAME_TRAILER * len(blocks.sizes)
    mib = len(data) / MIB
    return {
        "codec": codec,
        "level": level or None,
        "block_size": block_size,
        "blocks": round(len(blocks.sizes) * scale),
        "size": round(size * scale),
        "ratio": raw / size if size else None,
        "compress_ns": compress_ns / mib if mib else None,
        "decompress_ns": decompress_ns / mib if mib else None,
    }


@declare(
    "sst recompress",
    example=("lsmkv-tool sst recompress table.sst", "lsmkv-tool sst recompress mydb --limit 500"),
    table=True,
)
@path_argument("path", "FILE|DB")
@click.option("--limit", type=params.count_from(1), default=50_000, show_default=True, help="Entries in the sample.")
def recompress(out: Output, path: str, limit: int) -> None:
    """Measure what each codec would give with each block size: the size of the data blocks, and the time per MiB.

    Compresses a sample of the entries, spread over all tables, and scales the sizes up. The times are processor time. A
    size is what the blocks would take with that codec in all levels.
    """
    from lsmkv_ext.port import zstd

    files = table_paths([path])
    codecs = [each for each in CODECS if each[0] != "zstd" or zstd.describe() != "missing"]
    found = {block_size: Blocks() for block_size in BLOCK_SIZES}
    entries = sampled = raw = raw_sampled = 0
    with Progress("sampling", len(files)) as progress, tempfile.TemporaryDirectory() as directory:
        share = max(1, limit // max(1, len(files)))
        for file in progress.over(files):
            with Table(file) as table:
                sample = list(sample_of(table, share))
                seed = table.raw.seed
                raw += table.properties["key_bytes"] + table.properties["value_bytes"]
                entries += table.entries
            sampled += len(sample)
            raw_sampled += sum(len(key) + len(value or b"") for key, value, _ in sample)
            for block_size, blocks in found.items():
                add_blocks(blocks, sample, block_size, seed, directory)
    scale = raw / raw_sampled if raw_sampled else 1.0
    rows: list[dict[str, Any]] = []
    with Progress("compressing", len(codecs) * len(found)) as progress:
        for (codec, level), block_size in itertools.product(codecs, found):
            rows.append(row_of(found[block_size], codec, level, block_size, scale, raw_sampled))
            progress.step(1, f"{codec} {block_size}")
    note = f"{sampled:,} of {entries:,} entries, {units.size(raw)} raw in all; sizes of data blocks"

    def after(printer: Printer) -> None:
        printer.line()
        printer.sentence(note)

    out.rows(rows, COLUMNS, entries=entries, sampled=sampled, raw=raw, after=after)
