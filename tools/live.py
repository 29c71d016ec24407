"""What a database says about itself beside its tables: the OPTIONS file and the STATS its owner exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lsmkv_tool.folder import Folder

    from lsmkv.options import Options


def options(folder: Folder) -> Options:
    """The options the database was last opened with; the defaults where there is no such file."""
    from lsmkv.errors import CorruptionError
    from lsmkv.manifest import read_bounded
    from lsmkv.options import MAX_OPTIONS_BYTES, Options

    path = str(folder.path / "OPTIONS")
    try:
        return Options.decode(read_bounded(path, MAX_OPTIONS_BYTES), path)
    except (FileNotFoundError, CorruptionError):
        return Options()


def observed_fpr(db: str) -> dict[int, float]:
    return {}


def absent_share(db: str) -> float | None:
    return None
