"""`db compact`, `flush`, `checkpoint`, `ingest`, `upgrade`, `reset-clock` and `destroy`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import in_keyspace, open_reader, open_writer
from lsmkv_tool.directory import Directory, refuse_symlink, stat_file
from lsmkv_tool.exits import open_errors
from lsmkv_tool.manifest.reader import read_state
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress


def print_time(out: Output, path: str, verb: str, began: float) -> None:
    seconds = time.perf_counter() - began
    text = f"{verb} {path} in {units.duration(seconds * 1e9)}"
    out.result({"path": path, "seconds": seconds}, lambda printer: printer.line(text))


@declare("db compact", example="lsmkv-tool db compact mydb --yes", key_format=True, writes=True)
@path_argument()
@params.START
@params.STOP
@params.KEYSPACE
def compact(out: Output, db: str, start: bytes | None, stop: bytes | None, keyspace: str) -> None:
    """Compact a key range, by default all keys, into the bottom level."""
    out.confirm(f"Rewrite the tables of {db}?")
    began = time.perf_counter()
    with Progress("compacting", sized=True) as progress, open_writer(db) as handle:
        in_keyspace(handle, keyspace).compact_range(start, stop, wait=True, progress=progress.advance_to)
    print_time(out, db, "compacted", began)


@declare("db flush", example="lsmkv-tool db flush mydb --yes", writes=True)
@path_argument()
def flush(out: Output, db: str) -> None:
    """Flush the entries in the logs to tables, one for each keyspace."""
    out.confirm(f"Flush {db}?")
    began = time.perf_counter()
    with Progress("flushing"), open_writer(db) as handle:
        handle.flush(wait=True)
    print_time(out, db, "flushed", began)


@declare("db checkpoint", example="lsmkv-tool db checkpoint mydb copy --yes", writes=True)
@path_argument()
@click.argument("dest", type=click.Path())
def checkpoint(out: Output, db: str, dest: str) -> None:
    """Copy DB to the new directory DEST, also while another process writes to DB.

    Tables are hard-linked if the file system allows it.
    """
    out.confirm(f"Write a copy of {db} to {dest}?")
    began = time.perf_counter()
    with Progress("copying"), open_reader(db) as handle, open_errors(dest):
        handle.checkpoint(dest)
    print_time(out, dest, "copied to", began)


@declare("db ingest", example="lsmkv-tool db ingest mydb new.sst --yes", writes=True)
@path_argument()
@click.argument("files", type=click.Path(), nargs=-1, required=True)
@click.option("--move", is_flag=True, help="Move the files instead of copying them.")
@params.KEYSPACE
def ingest(out: Output, db: str, files: tuple[str, ...], move: bool, keyspace: str) -> None:
    """Add tables made by `sst build` or SSTWriter to DB. Their entries override existing ones."""
    for file in files:
        stat_file(file)
    out.confirm(f"Add {len(files)} table(s) to {db}?")
    with Progress("ingesting"), open_writer(db) as handle:
        in_keyspace(handle, keyspace).ingest(list(files), move=move)
    out.result({"files": list(files)}, lambda printer: printer.line(f"added {len(files)} table(s)"))


@declare("db upgrade", example="lsmkv-tool db upgrade mydb --yes", writes=True)
@path_argument()
def upgrade(out: Output, db: str) -> None:
    """Give DB the latest format. Releases that do not know it cannot open DB from then on."""
    import lsmkv

    before = read_state(db).format_version
    out.confirm(f"Upgrade {db}?")
    with open_errors(db):
        lsmkv.upgrade(db)
    after = read_state(db).format_version
    text = f"{db} has format {after}" + (f", was {before}" if after != before else " already")
    out.result({"path": db, "format_before": before, "format": after}, lambda printer: printer.line(text))


@declare("db reset-clock", example="lsmkv-tool db reset-clock mydb --yes", writes=True)
@path_argument()
def reset_clock(out: Output, db: str) -> None:
    """Set the clock that judges expiries back to the time of the system.

    The clock of a database never runs backward by itself. Reset it if the clock of the system was far ahead for a
    while. Entries that expired by the wrong clock come back, unless they were reclaimed.
    """
    from lsmkv.recovery import reset_clock
    from lsmkv.recovery.stored_state import latest_time

    before = latest_time(db, read_state(db))
    out.confirm(f"Reset the clock of {db}?")
    with open_errors(db):
        after = reset_clock.reset_clock(db)
    done = {"path": db, "clock_before": units.moment(before), "clock": units.moment(after)}
    out.result(done, lambda printer: printer.line(f"the clock of {db} shows {done['clock']}"))


@declare("db destroy", example="lsmkv-tool db destroy old --yes", writes=True)
@path_argument()
def destroy(out: Output, db: str) -> None:
    """Delete the files of DB, and its directory if it holds no other files."""
    import lsmkv

    refuse_symlink(db)
    files = Directory(db).database_files()
    total = sum(entry.size for entry in files)
    out.confirm(f"Delete {len(files)} files ({units.size(total)}) of {db}?")
    with open_errors(db):
        lsmkv.destroy(db)
    left = Directory(db).entries() if Path(db).is_dir() else []
    done = {"path": db, "files": len(files), "bytes": total, "left": [entry.name for entry in left]}
    out.result(done, lambda printer: printer.line(f"deleted {len(files)} files, {units.size(total)}"))
