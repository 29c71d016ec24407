"""`sst ls`, `info`, `layout`, `blocks`, `scan`, `verify`: what is in a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import click

from lsmkv_tool import exits
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import regular
from lsmkv_tool.keys import KEY
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Column, Human, Output, Row, num, rare
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.paths import gone, in_the_making, sst, tables, unnamed
from lsmkv_tool.sst.table import Table, open_table, problems

FILE = {"name": "file", "metavar": "FILE"}


def listing(out: Output, path: str) -> dict[str, Any]:
    """One table as a row; damage that keeps it from opening is a field."""
    row: dict[str, Any] = {"file": path, "size": regular(path).st_size, "problem": None}
    try:
        table = open_table(path)
    except Exception as error:
        failure = exits.classify(error)
        if failure is None or failure.code != exits.FINDING:
            raise
        blank = ("entries", "deletes", "range_tombstones", "blocks", "smallest", "largest", "min_seq", "max_seq")
        return row | dict.fromkeys((*blank, "bits_per_key", "ratio")) | {"problem": failure.message}
    with table:
        return row | {
            "entries": table.entries,
            "deletes": table.deletes,
            "range_tombstones": len(table.range_tombstones),
            "blocks": table.blocks,
            "smallest": out.key(table.smallest),
            "largest": out.key(table.largest),
            "min_seq": table.min_seq,
            "max_seq": table.max_seq,
            "bits_per_key": table.filter["bits_per_key"],
            "ratio": table.ratio,
        }


LISTING = [
    Column("file", "file"),
    num("size", "size", units.size),
    num("entries", "entries", units.count),
    num("deletes", "deletes", units.count),
    num("blocks", "blocks", units.count),
    num("ratio", "ratio", units.ratio),
    num("bits/key", "bits_per_key", lambda bits: f"{bits:.1f}"),
    num("seq", "max_seq"),
    Column("first key", "smallest"),
    Column("last key", "largest"),
    rare("problem", "problem"),
]


@declare(sst, example=("lsmkv-tool sst ls mydb", "lsmkv-tool sst ls table.sst"), keys=True)
@click.argument("paths", metavar="DB|FILE...", type=click.Path(), nargs=-1, required=True)
def ls(out: Output, paths: tuple[str, ...]) -> None:
    """List tables: sizes, entries, key range, compression, filter bits."""
    files = tables(paths)
    with Progress("opening", len(files)) as progress:
        rows = []
        for file in files:
            try:
                row = listing(out, file)
                if row["problem"] and file not in paths and in_the_making(file):
                    if unnamed(file):
                        continue
                    row = listing(out, file)  # finished since
                rows.append(row)
            except exits.CannotOpen:
                if not gone(file, paths):
                    raise
            progress.step(1, file)
    out.rows(rows, LISTING, empty="no tables", finding=any(row["problem"] for row in rows))


@declare(sst, example="lsmkv-tool sst info table.sst", keys=True)
@path_argument(**FILE)
def info(out: Output, file: str) -> None:
    """Print a table's properties, its sections, and its filter's header."""
    with open_table(file) as table:
        data: dict[str, Any] = {
            "file": file,
            "size": table.size,
            "properties": table.properties,
            "smallest": out.key(table.smallest),
            "largest": out.key(table.largest),
            "range_tombstones": [
                {"start": out.key(start), "stop": out.key(stop), "seq": seq}
                for start, stop, seq in table.range_tombstones
            ],
            "filter": table.filter,
        }

    def show(human: Human) -> None:
        human.fields([("file", file), ("size", units.size(data["size"]))])
        human.fields([("keys", f"{data['smallest']} .. {data['largest']}")])
        for title in ("properties", "filter"):
            human.line()
            human.heading(title)
            human.fields((f"  {name}", value) for name, value in data[title].items())
        if data["range_tombstones"]:
            human.line()
            human.heading("range tombstones")
            human.table(
                [Column("from", "start"), Column("to", "stop"), num("seq", "seq")], data["range_tombstones"]
            )

    out.result(data, show)


LAYOUT = [
    Column("part", "part"),
    num("offset", "offset"),
    num("stored", "stored"),
    num("raw", "raw"),
    num("entries", "entries"),
    Column("codec", "codec"),
    Column("up to key", "separator"),
    rare("problem", "problem"),
]


@declare(sst, example="lsmkv-tool sst layout table.sst", keys=True)
@path_argument(**FILE)
def layout(out: Output, file: str) -> None:
    """Draw the file as a tree of its parts, with offsets, raw and stored sizes, down to each data block."""
    with open_table(file) as table:
        sections, blocks = table.sections(), table.block_rows(out.key)

    def rows() -> Iterator[dict[str, Any]]:
        for section in sections:
            yield {"part": section["part"], **section, "codec": None, "separator": None, "entries": None}
            if section["part"] == "data":
                for i, block in enumerate(blocks):
                    branch = "`-" if i + 1 == len(blocks) else "|-"
                    yield {**block, "part": f"  {branch} block {block['block']}"}

    if out.mode == "human":
        out.human.table(LAYOUT, list(rows()))
    elif out.mode == "jsonl":
        out.rows([*sections, *blocks], LAYOUT)
    else:
        out.result({"file": file, "sections": sections, "blocks": blocks}, lambda human: None)


@declare(
    sst, example=("lsmkv-tool sst blocks table.sst", "lsmkv-tool sst blocks table.sst --block 0"), keys=True
)
@path_argument(**FILE)
@click.option("--block", type=click.IntRange(min=0), help="The entries of this one block.")
def blocks(out: Output, file: str, block: int | None) -> None:
    """List the data blocks, or the entries of one."""
    with open_table(file) as table:
        rows = table.block_rows(out.key)
        if block is None:
            columns = [num("block", "block"), *LAYOUT[1:]]
            damaged = any(row["problem"] for row in rows)
            out.rows(rows, columns, empty="no data blocks", finding=damaged)
            return
        if block >= len(rows):
            raise exits.Usage(f"{file} has {len(rows)} blocks, numbered from 0")
        entries = list(table.block_entries(block))
    shown = [
        {
            "key": out.key(key),
            "seq": seq,
            "op": "delete" if value is None else "put",
            "value_size": None if value is None else len(value),
        }
        for key, value, seq in entries
    ]
    columns = [Column("key", "key"), num("seq", "seq"), Column("op", "op"), num("value", "value_size")]
    out.rows(shown, columns)


def entry_line(row: Row) -> str:
    parts = [f"{row['seq']:>10}", f"{row['op']:<12}"]
    return "  ".join(parts + [str(row[name]) for name in ("key", "value") if row[name] is not None])


def entry_rows(
    out: Output, table: Table, start: bytes | None, stop: bytes | None, damage: list[Any]
) -> Iterator[Row]:
    for left, right, seq in table.range_tombstones:
        yield {"seq": seq, "op": "delete_range", "key": out.key(left), "value": out.key(right)}
    for key, value, seq in table.salvage(start, stop, damage):
        yield {
            "seq": seq,
            "op": "delete" if value is None else "put",
            "key": out.key(key),
            "value": out.value(value),
        }


@declare(sst, example="lsmkv-tool sst scan table.sst --limit 3", keys=True, values=True)
@path_argument(**FILE)
@click.option("--from", "start", type=KEY, help="First key.")
@click.option("--to", "stop", type=KEY, help="Key to stop before.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many.")
def scan(out: Output, file: str, start: bytes | None, stop: bytes | None, limit: int | None) -> None:
    """Print the entries of a table: sequence number, put or delete, key, value; range tombstones first.

    On a damaged table every block that can be read is printed, then what could not, and the exit code is 1.
    """
    damage: list[Any] = []

    def tail() -> dict[str, Any]:
        if damage:
            out.exit = exits.FINDING
        return {"problems": [{"offset": error.offset, "problem": str(error)} for error in damage]}

    with open_table(file) as table:
        out.stream(itertools.islice(entry_rows(out, table, start, stop, damage), limit), entry_line, tail)
    for problem in tail()["problems"]:
        out.note(f"lsmkv-tool: {problem['problem']}")


@declare(sst, example="lsmkv-tool sst verify table.sst --deep")
@click.argument("paths", metavar="DB|FILE...", type=click.Path(), nargs=-1, required=True)
@click.option(
    "--deep", is_flag=True, help="Also the order of keys, the counts, and every key against the filter."
)
def verify(out: Output, paths: tuple[str, ...], deep: bool) -> None:
    """Check the checksums of tables, or with --deep all their contents; exits 1 naming file and offset."""
    files = tables(paths)
    rows = []
    with Progress("verifying", len(files)) as progress:
        for file in files:
            try:
                found = problems(file, deep)
                if found and file not in paths and in_the_making(file):
                    if unnamed(file):
                        continue
                    found = problems(file, deep)  # finished since
                rows += found or [{"file": file, "verdict": "ok", "offset": None, "problem": None}]
            except exits.CannotOpen:
                if not gone(file, paths):
                    raise
            progress.step(1, file)
    columns = [
        Column("file", "file"),
        Column("state", "verdict"),
        num("offset", "offset"),
        rare("problem", "problem"),
    ]
    out.rows(rows, columns, empty="no tables", finding=any(row["verdict"] != "ok" for row in rows))
