"""Without opening a database for use: verify and destroy."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import xxhash

from lsmkv import filenames, ownership
from lsmkv.errors import CorruptionError
from lsmkv.filenames import Kind
from lsmkv.lockfile import DatabaseLock, is_locked
from lsmkv.options import MAX_OPTIONS_BYTES, Options
from lsmkv.recovery import recovery
from lsmkv.version import manifest
from lsmkv.version.manifest import ManifestState
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.table_inspect import sections
from lsmkv_ext.table.verify import verify_table
from lsmkv_ext.wal.log import check_log
from lsmkv_ext.wal.sync_watermark import damaged_places

Progress = Callable[[str, int, int], None]

# How often a database that somebody writes to is looked at again before a finding counts.
LIVE_ATTEMPTS = 5


@dataclass(frozen=True)
class Finding:
    """Something wrong: in which file, where in it if known, and what."""

    file: str
    offset: int | None
    what: str

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file}, offset {self.offset}"
        return f"{where}: {self.what}"


@dataclass
class Report:
    """What `verify` looked at and found. True when nothing is wrong."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    entries: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}

    def add(self, file: str, error: BaseException | str, offset: int | None = None) -> None:
        if isinstance(error, CorruptionError):
            offset = error.offset if offset is None else offset
        self.findings.append(Finding(os.path.basename(file), offset, str(error)))


# Verify ---------------------------------------------------------------------------------------------------


def verify(path: str | os.PathLike[str], *, deep: bool = True, progress: Progress | None = None) -> Report:
    """Reads every file and checks all that can be checked; changes nothing. `deep` also looks at every key.

    `progress(file, done, total)` is called with bytes before each file.
    """
    directory = filenames.folder_path(path)
    report = _verify_once(directory, deep, progress)
    for _ in range(LIVE_ATTEMPTS):
        # A writer may change files under our eyes; damage is still there at the next look.
        if report.ok or not is_locked(directory):
            break
        report = _verify_once(directory, deep, progress)
    return report


def _verify_once(directory: str, deep: bool, progress: Progress | None) -> Report:
    report = Report(directory)
    if not recovery.exists(directory):
        report.add(directory, "there is no database")
        return report
    listing = filenames.list_directory(directory)
    sizes = {name: _size(os.path.join(directory, name)) for name, _, _ in listing}
    state = _verify_manifest(directory, report)
    _verify_options(directory, report)
    done, total = 0, sum(sizes.values())
    for name, kind, number in listing:
        if progress is not None:
            progress(name, done, total)
        report.files += 1
        report.bytes += sizes[name]
        done += sizes[name]
        if kind is Kind.TABLE:
            _verify_table(directory, name, number, state, deep, report)
    if state is not None:
        _verify_presence(directory, state, report)
        _verify_logs(directory, state, report)
        _verify_watermark(directory, report)
    if progress is not None:
        progress("", total, total)
    return report


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _verify_manifest(directory: str, report: Report) -> ManifestState | None:
    try:
        state = recovery.read_state(directory)
    except (CorruptionError, OSError) as error:
        report.add(getattr(error, "file", None) or filenames.CURRENT, error)
        return None
    path = filenames.manifest_path(directory, state.number)
    try:
        with manifest.open_to_read(path) as file:
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
        Options.decode(manifest.read_bounded(path, MAX_OPTIONS_BYTES), path)
    except FileNotFoundError:
        report.notes.append("no OPTIONS file")
    except (CorruptionError, OSError) as error:
        report.add(path, error)


def _verify_table(
    directory: str, name: str, number: int, state: ManifestState | None, deep: bool, report: Report
) -> None:
    path = os.path.join(directory, name)
    metas = {} if state is None else {f.number: f for f in state.version.files()}
    if state is not None and number not in metas:
        report.notes.append(f"{name} belongs to no version")
        return
    try:
        table = Table(path, number)
        if number in metas:
            recovery.check_table(table, metas[number], path)
        report.entries += table.n_entries
        for finding in verify_table(table, deep=deep):
            report.add(path, finding["what"], finding["offset"])
        for offset in _dirty_padding(table, path):
            report.add(path, "padding is not zero", offset)
    except (CorruptionError, OSError) as error:
        report.add(path, error)


def _dirty_padding(table: Table, path: str) -> Iterator[int]:
    with manifest.open_to_read(path) as file:
        for name, offset, size in sections(table):
            if name == "padding":
                file.seek(offset)
                if any(file.read(size)):
                    yield offset


def _verify_presence(directory: str, state: ManifestState, report: Report) -> None:
    for f in state.version.files():
        path = filenames.table_path(directory, f.number)
        try:
            size = os.lstat(path).st_size
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            report.add(path, "a table of the manifest is missing" if gone else error)
            continue
        if size != f.size:
            report.add(path, f"the manifest says {f.size} bytes")


def _verify_logs(directory: str, state: ManifestState, report: Report) -> None:
    try:
        numbers = recovery.live_logs(directory, state)
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
            for offset in _damaged_slots(path, number):
                report.add(path, "damaged watermark of what is synced", offset)
        except (CorruptionError, OSError) as error:
            report.add(path, error)


# The two notes of what is synced in a log's head page (docs/format.md): opening lives with one of them
# damaged.
LOG_SLOTS = (512, 1024)
LOG_SLOT = struct.Struct("<QQQ")
LOG_SLOT_SEED = 0x6C6F672D736C6F74


def _verify_watermark(directory: str, report: Report) -> None:
    path = os.path.join(directory, filenames.SYNCED)
    places = damaged_places(path)
    if places:
        report.add(path, "damaged watermark of what is synced", places[0])


def _damaged_slots(path: str, number: int) -> Iterator[int]:
    with manifest.open_to_read(path) as file:
        head = file.read(recovery.LOG_HEAD_BYTES)
    for at in LOG_SLOTS:
        slot = head[at : at + LOG_SLOT.size]
        if any(slot) and LOG_SLOT.unpack(slot)[2] != xxhash.xxh3_64_intdigest(slot[:16], number ^ LOG_SLOT_SEED):
            yield at


# Destroy --------------------------------------------------------------------------------------------------


def destroy(path: str | os.PathLike[str]) -> None:
    """Deletes a database: the files that are ours, and the folder if nothing else is in it."""
    directory = filenames.folder_path(path)
    if not os.path.lexists(directory):
        return
    with manifest.io_errors("destroy", directory):
        _destroy(directory)


def _destroy(directory: str) -> None:
    manifest.refuse_foreign(directory)
    lock = DatabaseLock(directory)
    try:
        # First, while CURRENT shows that it is ours.
        lost = os.path.join(directory, filenames.LOST)
        if os.path.isdir(lost) and not os.path.islink(lost):
            _remove(lost, everything=ownership.is_database(directory))
            with suppress(OSError):
                os.rmdir(lost)
        remove_files(directory)
        if _size(lock_path := os.path.join(directory, filenames.LOCK)) == 0:
            os.unlink(lock_path)
    finally:
        lock.release()
    with suppress(OSError):
        os.rmdir(directory)


def remove_files(directory: str) -> None:
    """All files of ours but LOCK."""
    manifest.refuse_foreign(directory)
    _remove(directory, everything=ownership.is_database(directory))


def _remove(directory: str, everything: bool) -> None:
    """Files with names of ours but LOCK: everything, or those whose contents show that they are ours."""
    listing = [(name, kind) for name, kind, _ in filenames.list_directory(directory) if kind is not Kind.LOCK]
    known = {name for name, kind in listing if ownership.recognised(directory, name, kind)}
    names = [name for name, _ in listing if everything or name in known]
    # Nothing but CURRENT shows that the damaged files are ours, so they go before it. The rest follows: what is left of
    # a half removed database is none.
    for name in sorted(names, key=lambda name: (name in known, name != filenames.CURRENT)):
        os.unlink(os.path.join(directory, name))
    manifest.sync_directory(directory)
