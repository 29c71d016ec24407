"""Watches the order of syncs in a trace, without waiting for a crash to show what a wrong order costs.

 1. A manifest record that adds a table is written only when the table and its name are synced.
 2. CURRENT is replaced only by a synced file that names a manifest which is itself synced, name and all.
 3. A table, log or manifest is unlinked only when the manifest no longer needs it, durably: no state that a
    power cut may leave behind names a file that is gone.
 4. A log gets its name only when its head is synced, so that a log without a head is known to be damaged.
 5. After a failed fsync there is no other one on the same file.

What a manifest needs is asked of the caller, so this file knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .iofault import Op
from .replay import Content, Disk, keep
from .trace import Record

WRITES = (Op.WRITE, Op.PWRITE, Op.STORE)
SYNCS = (Op.FSYNC, Op.FDATASYNC, Op.MSYNC)


@dataclass(frozen=True)
class Needed:
    """What a manifest's bytes ask for: these tables, and the logs from this number on."""

    tables: frozenset[str] = frozenset()
    first_log: int = 1 << 63

    def __contains__(self, name: str) -> bool:
        log = re.fullmatch(r"(\d+)\.wal", name)
        return name in self.tables or (log is not None and int(log[1]) >= self.first_log)


Needs = Callable[[bytes], Needed]


@dataclass
class Monitor:
    needs: Needs
    # Bytes at the head of a manifest whose stores may lag behind its syncs (they only note what is synced).
    notes: int = 0
    # Bytes of a log's head: a log with nothing behind it was made in advance and never used, so nobody needs it.
    log_head: int = 0
    disk: Disk = field(default_factory=Disk)
    problems: list[str] = field(default_factory=list)
    checks: int = 0
    _failed: set[int] = field(default_factory=set)
    _unused: bool = False

    def watch(self, records: Iterable[Record]) -> list[str]:
        for number, record in enumerate(records):
            self._before(number, record)
            self.disk.follow(record)
            self._after(number, record)
        return self.problems

    def _say(self, number: int, text: str) -> None:
        self.problems.append(f"record {number}: {text}")

    def _unused_log(self, path: str) -> bool:
        key = self.disk.names.get(path)
        if key is None or not path.endswith(".wal"):
            return False
        return not any(keep(self.disk.inodes[key]).whole()[self.log_head :])

    def _before(self, number: int, record: Record) -> None:
        self._unused = record.op == Op.UNLINK and self._unused_log(record.path)
        if record.op in SYNCS and not record.directory:
            if record.inode in self._failed:
                self._say(number, f"{record.path} is synced again after a failed sync")
            if record.error:
                self._failed.add(record.inode)
        if record.op == Op.OPEN and record.created:
            self._failed.discard(record.inode)
        if record.done and record.op == Op.RENAME and record.path2 == "CURRENT":
            self._check_current(number, record)
        if record.done and record.op == Op.RENAME and record.path2.endswith(".wal"):
            self.checks += 1
            if self.disk.inodes[self.disk.names[record.path]].pending:
                self._say(number, f"{record.path2} gets its name before its head is synced")
        if record.op == Op.OPEN and record.created and record.path.endswith(".wal"):
            self._say(number, f"{record.path} is created under its own name")

    def _after(self, number: int, record: Record) -> None:
        if not record.done:
            return
        if record.op in WRITES and record.path.startswith("MANIFEST"):
            self._check_tables(number, record.path)
        if record.op == Op.UNLINK and not self._unused:
            self._check_unlink(number, record.path)

    def _durable(self, name: str) -> bool:
        """Would the file survive a power cut, whole and under its name?"""
        key = self.disk.names.get(name)
        if key is None or self.disk.durable_names.get(name) != key:
            return False
        lagging = self.notes if name.startswith("MANIFEST") else 0
        return all(change.end <= lagging for change in self.disk.inodes[key].pending)

    def _check_tables(self, number: int, manifest: str) -> None:
        content = keep(self.disk.inodes[self.disk.names[manifest]])
        for name in self.needs(content.whole()).tables:
            self.checks += 1
            if not self._durable(name):
                self._say(number, f"{manifest} names {name}, which is not synced")

    def _check_current(self, number: int, record: Record) -> None:
        self.checks += 1
        key = self.disk.names[record.path]
        if self.disk.inodes[key].pending:
            self._say(number, "CURRENT is replaced by a file that is not synced")
        named = re.search(rb"MANIFEST-\d+", self.disk.inodes[key].durable.whole())
        if named is None or not self._durable(named[0].decode()):
            self._say(number, f"CURRENT names {named and named[0]!r}, which is not synced")

    def _possible_manifests(self) -> dict[str, list[Content]]:
        """Every manifest that CURRENT may name after a power cut, with the contents it may have."""
        out: dict[str, list[Content]] = {}
        for names in (self.disk.durable_names, self.disk.names):
            current = names.get("CURRENT")
            if current is None:
                continue
            named = re.search(rb"MANIFEST-\d+", keep(self.disk.inodes[current]).whole())
            name = named[0].decode() if named else ""
            if name in names:
                inode = self.disk.inodes[names[name]]
                out[name] = [inode.durable, keep(inode)]
            elif name:
                out[name] = []
        return out

    def _check_unlink(self, number: int, path: str) -> None:
        for name, contents in self._possible_manifests().items():
            self.checks += 1
            if path == name:
                self._say(number, f"{path} is unlinked while CURRENT may still name it")
            for content in contents:
                if path in self.needs(content.whole()):
                    self._say(number, f"{path} is unlinked while {name} may still name it")
