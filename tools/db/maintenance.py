"""The `db` commands that change a database: each asks first, or needs --yes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import db, writing
from lsmkv_tool.directory import Folder, regular
from lsmkv_tool.exits import CannotOpen, Usage, opening
from lsmkv_tool.keys import KEY
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress


@declare(db, example="lsmkv-tool db put mydb user:99999 Ada --yes", keys=True, changes=True)
@path_argument()
@click.argument("key", type=KEY)
@click.argument("value", type=KEY, required=False)
@click.option("--value-file", type=click.Path(), help="Take the value from this file (- for stdin).")
@click.option("--sync/--no-sync", default=True, show_default=True, help="Wait until it survives a power cut.")
def put(out: Output, db: str, key: bytes, value: bytes | None, value_file: str | None, sync: bool) -> None:
    """Store VALUE under KEY. VALUE is written like a key: text, hex:, base64:."""
    if (value is None) == (value_file is None):
        raise Usage("give VALUE or --value-file, one of them")
    if value is None:
        with opening(value_file or ""):
            value = sys.stdin.buffer.read() if value_file == "-" else Path(value_file or "").read_bytes()
    out.confirm(f"Store {len(value)} bytes under {out.key_text(key)} in {db}?")
    with writing(db) as handle:
        handle.put(key, value, sync=sync)
    done = {"key": out.key(key), "bytes": len(value), "synced": sync}
    out.result(done, lambda human: human.line(f"stored {len(value)} bytes under {out.key_text(key)}"))


@declare(db, example="lsmkv-tool db delete mydb user:00007 --yes", keys=True, changes=True)
@path_argument()
@click.argument("keys", type=KEY, nargs=-1)
@click.option("--from", "start", type=KEY, help="Delete a range: its first key.")
@click.option("--to", "stop", type=KEY, help="Delete a range: the key to stop before.")
def delete(out: Output, db: str, keys: tuple[bytes, ...], start: bytes | None, stop: bytes | None) -> None:
    """Delete KEYS, or every key of a range."""
    ranged = start is not None and stop is not None
    if ranged == bool(keys) or (start is None) != (stop is None):
        raise Usage("give KEYS, or --from and --to")
    what = f"{len(keys)} key(s)" if keys else f"everything from {out.key_text(start)} to {out.key_text(stop)}"
    out.confirm(f"Delete {what} in {db}?")
    with writing(db) as handle, handle.write_batch(sync=True) as batch:
        for key in keys:
            batch.delete(key)
        if start is not None and stop is not None:
            batch.delete_range(start, stop)
    done = {"keys": [out.key(key) for key in keys], "from": out.key(start), "to": out.key(stop)}
    out.result(done, lambda human: human.line(f"deleted {what}"))


def _timed(out: Output, path: str, verb: str, seconds: float) -> None:
    before_after = {"path": path, "seconds": seconds}
    out.result(before_after, lambda human: human.line(f"{verb} {path} in {units.duration(seconds * 1e9)}"))


@declare(db, example="lsmkv-tool db compact mydb --yes", keys=True, changes=True)
@path_argument()
@click.option("--from", "start", type=KEY, help="First key of the range.")
@click.option("--to", "stop", type=KEY, help="Key to stop before.")
def compact(out: Output, db: str, start: bytes | None, stop: bytes | None) -> None:
    """Merge a key range (by default everything) down to its lowest level."""
    out.confirm(f"Rewrite the tables of {db}?")
    began = time.perf_counter()
    with Progress("compacting") as bar, writing(db) as handle:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.step(done - bar.done)

        handle.compact_range(start, stop, wait=True, progress=progress)
    _timed(out, db, "compacted", time.perf_counter() - began)


@declare(db, example="lsmkv-tool db flush mydb --yes", changes=True)
@path_argument()
def flush(out: Output, db: str) -> None:
    """Write what is only in the log into a table."""
    out.confirm(f"Flush {db}?")
    began = time.perf_counter()
    with Progress("flushing"), writing(db) as handle:
        handle.flush(wait=True)
    _timed(out, db, "flushed", time.perf_counter() - began)


@declare(db, example="lsmkv-tool db checkpoint mydb copy --yes", changes=True)
@path_argument()
@click.argument("dest", type=click.Path())
def checkpoint(out: Output, db: str, dest: str) -> None:
    """Make an openable copy of DB in the new folder DEST; tables are linked where the file system can."""
    out.confirm(f"Write a copy of {db} to {dest}?")
    began = time.perf_counter()
    with Progress("copying"), writing(db) as handle, opening(dest):
        handle.checkpoint(dest)
    _timed(out, dest, "copied to", time.perf_counter() - began)


@declare(db, example="lsmkv-tool db ingest mydb new.sst --yes", changes=True)
@path_argument()
@click.argument("files", type=click.Path(), nargs=-1, required=True)
@click.option("--move", is_flag=True, help="Move the files instead of copying them.")
def ingest(out: Output, db: str, files: tuple[str, ...], move: bool) -> None:
    """Add finished tables (from `sst build` or SSTWriter) to DB; their entries count as the newest."""
    for file in files:
        regular(file)
    out.confirm(f"Add {len(files)} table(s) to {db}?")
    with Progress("adding"), writing(db) as handle:
        handle.ingest(list(files), move=move)
    out.result({"files": list(files)}, lambda human: human.line(f"added {len(files)} table(s)"))


@declare(db, example="lsmkv-tool db destroy old --yes", changes=True)
@path_argument()
def destroy(out: Output, db: str) -> None:
    """Delete the database DB: its own files, nothing else, and the folder if that leaves it empty."""
    import lsmkv

    if Path(db).is_symlink():
        raise CannotOpen(f"{db} is a symbolic link; the tool follows none", file=db)
    entries = Folder(db).entries()
    mine = [entry for entry in entries if entry.kind != "other"]
    if not mine:
        raise CannotOpen(f"{db} holds no database", file=db)
    total = sum(entry.size for entry in mine)
    out.confirm(f"Delete {len(mine)} files ({units.size(total)}) of {db}?")
    with opening(db):
        lsmkv.destroy(db)
    left = Folder(db).entries() if Path(db).is_dir() else []
    done = {"path": db, "files": len(mine), "bytes": total, "left": [entry.name for entry in left]}
    out.result(done, lambda human: human.line(f"deleted {len(mine)} files, {units.size(total)}"))
