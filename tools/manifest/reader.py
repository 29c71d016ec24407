"""Reading a manifest, up to the first damage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lsmkv_tool.directory import is_directory, parse_name, stat_file
from lsmkv_tool.exits import FINDING, CannotOpen, Usage, open_errors
from lsmkv_tool.problems import split_place
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output

if TYPE_CHECKING:
    from lsmkv.version.manifest import ManifestState, Record


def locate(path: str) -> tuple[str, int]:
    """Return (directory, number) of the manifest file `path`, or of the current one of the database `path`."""
    if is_directory(path):
        from lsmkv.version.current import read_current

        with open_errors(path):
            return path, read_current(path)
    kind, number = parse_name(os.path.basename(path))
    if kind != "manifest":
        raise Usage(f"{path} is not named like a manifest (MANIFEST-000001)")
    stat_file(path)
    return os.path.dirname(path) or ".", number


class ManifestFile:
    """The records of a manifest, the state they add up to, and the error that ended the read, if any."""

    def __init__(self, path: str) -> None:
        from lsmkv import files
        from lsmkv.errors import CorruptionError
        from lsmkv.filenames import manifest_path
        from lsmkv.version import manifest

        directory, self.number = locate(path)
        self.path = manifest_path(directory, self.number)
        stat_file(self.path)
        with open_errors(self.path):
            data = files.read_bounded(self.path, manifest.MAX_RECORD)
        self.size = len(data)
        self.records: list[Record] = []
        self.state: ManifestState = manifest.ManifestState(self.number)
        self.error: CorruptionError | None = None
        try:
            for record in manifest.scan(data, self.number, self.path, self.state):
                self.records.append(record)
        except CorruptionError as error:
            self.error = error
        self.head_damage = manifest.head_damage(data, self.number) if self.error is None else None

    def problem(self) -> dict[str, Any] | None:
        if self.error is not None:
            return {
                "problem": split_place(str(self.error), self.path)[0],
                "file": self.path,
                "offset": self.error.offset,
            }
        if self.head_damage is not None:
            return {"problem": self.head_damage, "file": self.path, "offset": 0}
        if not self.records:
            return {"problem": "no edit", "file": self.path, "offset": self.size}
        if self.state.torn_bytes:
            what = f"{self.state.torn_bytes} bytes after the last record are not a record"
            return {"problem": what, "file": self.path, "offset": self.state.size}
        return None

    def report_problem(self, out: Output) -> None:
        """After a listing: print the problem to stderr and set exit code 1."""
        problem = self.problem()
        if problem:
            out.exit = FINDING
            out.note(f"lsmkv-tool: {problem['problem']} ({problem['file']}, offset {problem['offset']})")


def read_state(db: str) -> ManifestState:
    """Return the state of a database. Raises on damage."""
    manifest = ManifestFile(db)
    if manifest.error is not None:
        raise manifest.error
    if not manifest.records:
        raise CannotOpen(f"{manifest.path} has no edit", file=manifest.path)
    return manifest.state


def format_time(time_us: int) -> str | None:
    return units.moment(time_us / 1000)
