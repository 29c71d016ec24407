"""Verify: reads every file of a database and checks all that can be checked, without opening it for use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from lsmkv import filenames
from lsmkv.errors import CorruptionError
from lsmkv.filenames import FileKind
from lsmkv.files import open_to_read, read_bounded, size_of
from lsmkv.lockfile import is_locked
from lsmkv.options import MAX_OPTIONS_BYTES, Options
from lsmkv.recovery import stored_state
from lsmkv.recovery.replay import MOST_UNKNOWN
from lsmkv.version import manifest
from lsmkv.version.manifest import ManifestState
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.table_inspect import sections
from lsmkv_ext.table.verify import value_problems, verify_table
from lsmkv_ext.values.reader import ValueLog
from lsmkv_ext.wal.pointers import check_values, value_logs_of
from lsmkv_ext.wal.reader import check_log, log_keyspaces
from lsmkv_ext.wal.sync_watermark import damaged_offsets

Progress = Callable[[str, int, int], None]

# How often a database with a writer is read again before a finding counts.
LIVE_ATTEMPTS = 5


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: the file, the offset if known, and a description."""

    file: str
    offset: int | None
    what: str

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file}, offset {self.offset}"
        return f"{where}: {self.what}"


@dataclass
class Report:
    """The result of `verify`: what it read and found. True if nothing is wrong.

    >>> lsmkv.open("people.db").close()
    >>> lsmkv.verify("people.db").findings
    []
    """

    path: str
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    entries: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong.

        >>> lsmkv.open("people.db").close()
        >>> lsmkv.verify("people.db").ok
        True
        """
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, for JSON.

        >>> lsmkv.open("people.db").close()
        >>> lsmkv.verify("people.db").to_dict()["findings"]
        []
        """
        return {**asdict(self), "ok": self.ok}

    def add(self, file: str, error: BaseException | str, offset: int | None = None) -> None:
        """Add a finding. Without `offset` it takes that of a `CorruptionError`.

        >>> report = lsmkv.Report("people.db")
        >>> report.add("CURRENT", "names no manifest")
        >>> report.ok
        False
        """
        if isinstance(error, CorruptionError):
            offset = error.offset if offset is None else offset
        self.findings.append(Finding(os.path.basename(file), offset, str(error)))


def verify(path: str | os.PathLike[str], *, deep: bool = True, progress: Progress | None = None) -> Report:
    """Read every file of the database in `path` and check all that can be checked. Nothing is changed.

    `deep` also checks every key. `progress(file, done, total)` is called with bytes before each file. Returns a
    `Report`, which is true if nothing is wrong. Raises `FormatError` if a newer release wrote a file.

    >>> lsmkv.open("people.db").close()
    >>> bool(lsmkv.verify("people.db"))
    True
    """
    directory = filenames.directory_path(path)
    if not os.path.isdir(directory):
        report = Report(directory)
        report.add(directory, "there is no database")
        return report
    report = _verify_once(directory, deep, progress)
    for _ in range(LIVE_ATTEMPTS):
        # A writer may change the files meanwhile; damage is still there at the next look.
        if report.ok or not is_locked(directory):
            break
        report = _verify_once(directory, deep, progress)
    return report


def _verify_once(directory: str, deep: bool, progress: Progress | None) -> Report:
    report = Report(directory)
    if not stored_state.exists(directory):
        report.add(directory, "there is no database")
        return report
    listing = filenames.list_directory(directory)
    sizes = {name: size_of(os.path.join(directory, name)) for name, _, _ in listing}
    state = _verify_manifest(directory, report)
    _verify_options(directory, report)
    done, total = 0, sum(sizes.values())
    for name, kind, number in listing:
        if progress is not None:
            progress(name, done, total)
        report.files += 1
        report.bytes += sizes[name]
        done += sizes[name]
        if kind is FileKind.TABLE:
            _verify_table(directory, name, number, state, deep, report)
    if state is not None:
        _verify_presence(directory, state, report)
        _verify_logs(directory, state, report)
        _verify_watermark(directory, report)
    _verify_kinds(directory, report)
    if progress is not None:
        progress("", total, total)
    return report


def _verify_manifest(directory: str, report: Report) -> ManifestState | None:
    try:
        state = stored_state.read_state(directory)
    except (CorruptionError, OSError) as error:
        report.add(getattr(error, "file", None) or filenames.CURRENT, error)
        return None
    path = filenames.manifest_path(directory, state.number)
    try:
        with open_to_read(path) as file:
            odd = manifest.head_damage(file.read(manifest.HEAD_BYTES), state.number)
        if odd is not None:
            report.add(path, odd, 0)
    except OSError as error:
        report.add(path, error)
    if state.torn_bytes:
        report.add(path, f"{state.torn_bytes} bytes of an append that never finished", state.size)
    return state


def _verify_options(directory: str, report: Report) -> None:
    path = os.path.join(directory, filenames.OPTIONS)
    try:
        Options.decode(read_bounded(path, MAX_OPTIONS_BYTES), path)
    except FileNotFoundError:
        report.notes.append("no OPTIONS file")
    except (CorruptionError, OSError) as error:
        report.add(path, error)


def _verify_table(
    directory: str, name: str, number: int, state: ManifestState | None, deep: bool, report: Report
) -> None:
    path = os.path.join(directory, name)
    metas = {} if state is None else {f.number: f for f in state.files()}
    if state is not None and number not in metas:
        report.notes.append(f"{name} belongs to no version")
        return
    try:
        table = Table(path, number, own_log=metas[number].own_log if number in metas else 0)
        if number in metas:
            stored_state.check_table(table, metas[number], path)
        report.entries += table.n_entries
        findings = list(verify_table(table, deep=deep))
        for finding in findings:
            report.add(path, finding["what"], finding["offset"])
        for offset in _dirty_padding(table, path):
            report.add(path, "padding is not zero", offset)
        for file, what in value_problems(table) if table.meta.value_logs and not findings else ():
            report.add(file, what)
    except (CorruptionError, OSError) as error:
        report.add(path, error)


def _dirty_padding(table: Table, path: str) -> Iterator[int]:
    with open_to_read(path) as file:
        for name, offset, size in sections(table):
            if name == "padding":
                file.seek(offset)
                if any(file.read(size)):
                    yield offset


def _verify_presence(directory: str, state: ManifestState, report: Report) -> None:
    for f in state.files():
        try:
            stored_state.check_table_file(directory, f)
        except (CorruptionError, OSError) as error:
            report.add(filenames.table_path(directory, f.number), error)


def _verify_logs(directory: str, state: ManifestState, report: Report) -> None:
    try:
        numbers = stored_state.live_logs(directory, state)
    except CorruptionError as error:
        report.add(error.file or directory, error)
        return
    for number in numbers:
        path = filenames.log_path(directory, number)
        try:
            found = check_log(path, number)
            report.entries += found["entries"]
            if found["torn_reason"] is not None:
                report.add(path, f"torn: {found['torn_reason']}", found["torn_offset"])
            if found["version"] > 1 and found["records"]:
                _verify_logged_values(directory, path, number, found, report)
            for keyspace in sorted(
                log_keyspaces(path, number, found["bytes"], len(state.trees) + MOST_UNKNOWN) - state.trees.keys()
            ):
                report.add(path, f"operations of keyspace {keyspace}, which is not in the manifest")
            if found["damaged_slot"] is not None:
                report.add(path, "damaged sync watermark", found["damaged_slot"])
        except (CorruptionError, OSError) as error:
            report.add(path, error)


def _verify_logged_values(directory: str, path: str, number: int, found: dict[str, Any], report: Report) -> None:
    """Checks all values that a log points to, as if none was synced."""
    logs = []
    for each, identity in value_logs_of(path, number, found["bytes"]).items():
        try:
            logs.append(ValueLog(filenames.value_log_path(directory, each), each, identity=identity))
        except (CorruptionError, OSError) as error:
            report.add(filenames.value_log_path(directory, each), error)
    problem = check_values(path, number, found["bytes"], 0, logs, {})
    if "torn_reason" in problem:
        report.add(path, problem["torn_reason"], problem["torn_offset"])


def _verify_watermark(directory: str, report: Report) -> None:
    path = os.path.join(directory, filenames.SYNCED)
    try:
        offsets = damaged_offsets(path)
    except (CorruptionError, OSError) as error:
        report.add(path, error)
        return
    if offsets:
        report.add(path, "damaged sync watermark", offsets[0])


def _verify_kinds(directory: str, report: Report) -> None:
    reported = {finding.file for finding in report.findings}
    for name, _, _ in filenames.list_irregular(directory):
        if name not in reported:
            report.add(name, "not a regular file")
