"""The OPTIONS file: the options a database was last opened with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsmkv_tool.directory import Directory

if TYPE_CHECKING:
    from lsmkv.options import Options


def read_options(directory: Directory) -> Options:
    """Return the stored options, or the defaults if there is no OPTIONS file."""
    from lsmkv.files import read_bounded
    from lsmkv.options import MAX_OPTIONS_BYTES, Options

    path = str(directory.path / "OPTIONS")
    try:
        return Options.decode(read_bounded(path, MAX_OPTIONS_BYTES), path)
    except FileNotFoundError:
        return Options()
