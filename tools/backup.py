"""`backup`, `restore`, `backups` and `prune`: repositories of backups, in a directory or an object store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.exits import Usage, open_errors
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Column, Row, key, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress

COLUMNS = [
    Column("version", "id"),
    Column("created", "created", lambda time: time[:16]),
    num("files", "files", units.count, rank=1),
    num("size", "bytes", units.size),
    key("source", "source"),
]

STORE_OPTION = click.option(
    "--store-option",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option for the client of the object store, such as endpoint=http://localhost:9000. Repeatable.",
)


def url_argument(function: Callable[..., None]) -> Callable[..., None]:
    decorated: Callable[..., None] = click.argument("url", metavar="URL")(STORE_OPTION(function))
    return decorated


def store_options(given: tuple[str, ...]) -> dict[str, Any]:
    options = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise Usage(f"--store-option {each!r}: expected NAME=VALUE")
        options[name] = value
    return options


def summary(version: Any) -> Row:
    return {
        "id": version.id,
        "created": version.created.strftime("%Y-%m-%d %H:%M:%S"),
        "files": len(version.files),
        "bytes": version.bytes,
        "source": version.source,
    }


@declare("backup", example="lsmkv-tool backup mydb backups --yes", writes=True)
@path_argument()
@url_argument
@click.option("--no-verify", is_flag=True, help="Do not check the checksums of new files before they are sent.")
@click.option("--uploads", type=click.IntRange(min=1), default=4, show_default=True, help="Uploads at a time.")
def backup(out: Output, db: str, url: str, given: tuple[str, ...], no_verify: bool, uploads: int) -> None:
    """Add a version of DB to the repository of backups at URL, also while another process writes to DB.

    URL is a directory, or an object store such as s3://bucket/path. Only files that no earlier version has are sent. An
    interrupted backup leaves the earlier versions as they are; the next one continues it.
    """
    import lsmkv

    options = store_options(given)
    out.confirm(f"Back up {db} to {url}?")
    began = time.perf_counter()
    with Progress("sending", sized=True) as bar, open_errors(db):

        def progress(file: str, done: int, total: int) -> None:
            bar.advance_to(done, total, file)

        made = lsmkv.backup(db, url, uploads=uploads, verify=not no_verify, storage_options=options, progress=progress)
    seconds = time.perf_counter() - began
    row = summary(made) | {"sent_files": made.sent_files, "sent_bytes": made.sent_bytes, "seconds": seconds}
    sent = f"sent {made.sent_files} of {row['files']} files, {units.size(made.sent_bytes)} of {units.size(made.bytes)}"
    out.result(row, lambda printer: printer.line(f"version {made.id}: {sent}, {seconds:.1f} s"))


@declare("restore", example="lsmkv-tool restore backups restored --yes", writes=True)
@url_argument
@click.argument("path", type=click.Path())
@click.option("--version", help="Id of the version. Default: the newest one.")
@click.option("--downloads", type=click.IntRange(min=1), default=4, show_default=True, help="Downloads at a time.")
def restore(out: Output, url: str, path: str, given: tuple[str, ...], version: str | None, downloads: int) -> None:
    """Create a database at PATH from a version in the repository of backups at URL.

    The checksums of all files are checked. PATH must not exist; it appears once the database is whole. An interrupted
    restore is continued by the next one.
    """
    import lsmkv

    options = store_options(given)
    out.confirm(f"Restore {version or 'the newest version'} to {path}?")
    began = time.perf_counter()
    with Progress("receiving", sized=True) as bar, open_errors(path):

        def progress(file: str, done: int, total: int) -> None:
            bar.advance_to(done, total, file)

        found = lsmkv.restore(url, path, version, downloads=downloads, storage_options=options, progress=progress)
    seconds = time.perf_counter() - began
    text = (
        f"restored version {found.id} to {path}: {len(found.files)} files, {units.size(found.bytes)}, {seconds:.1f} s"
    )
    out.result(summary(found) | {"path": path, "seconds": seconds}, lambda printer: printer.line(text))


@declare("backups", example="lsmkv-tool backups backups", table=True)
@url_argument
def backups(out: Output, url: str, given: tuple[str, ...]) -> None:
    """List the versions in the repository of backups at URL, oldest first."""
    import lsmkv

    with open_errors(url):
        found = lsmkv.backups(url, storage_options=store_options(given))
    out.rows([summary(each) for each in found], COLUMNS, empty=f"{url}: no backups")


@declare("prune", example="lsmkv-tool prune backups --keep 7 --yes", writes=True, table=True)
@url_argument
@click.option("--keep", type=click.IntRange(min=1), required=True, help="How many of the newest versions to keep.")
def prune(out: Output, url: str, given: tuple[str, ...], keep: int) -> None:
    """Remove all versions but the newest, and the files that only they need."""
    import lsmkv

    options = store_options(given)
    out.confirm(f"Remove all but the newest {keep} versions from {url}?")
    with Progress("removing") as bar, open_errors(url):

        def progress(file: str, done: int, total: int) -> None:
            bar.advance_to(done, total, file)

        removed = lsmkv.prune_backups(url, keep, storage_options=options, progress=progress)
    out.rows([summary(each) for each in removed], COLUMNS, empty="nothing to remove")
