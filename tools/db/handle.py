"""The `db` group, and the two ways its commands open a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsmkv_tool.command import group
from lsmkv_tool.db import stats_export as live
from lsmkv_tool.directory import Folder
from lsmkv_tool.exits import opening

if TYPE_CHECKING:
    from lsmkv.db import DB

db = group("db", "A database: look, read, write, maintain.")


def reading(path: str) -> DB:
    """A read-only handle: takes no lock, writes nothing, works beside the process that owns the database."""
    import lsmkv
    from lsmkv.errors import CorruptionError
    from lsmkv.options import Options

    folder = Folder(path)
    try:
        options = live.options(folder)
    except CorruptionError:
        options = Options()  # reading needs none of them; `verify` is who complains
    with opening(path):
        return lsmkv.open(path, "r", options=options)


def writing(path: str, **options: Any) -> DB:
    """The one writing handle; exit 3 while another process has it."""
    import lsmkv

    folder = Folder(path)
    with opening(path):
        # The options it was last opened with: a visit by the tool must not change how the database is kept.
        return lsmkv.open(path, "w", options=live.options(folder), **options)
