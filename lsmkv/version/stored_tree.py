"""The durable side of one keyspace: its current version, its options, and its open tables. `lsmkv_ext.tree.Tree` is the
live side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lsmkv.errors import ClosedError, KeyspaceError
from lsmkv.options import LARGE_VALUE, Options
from lsmkv.version.edit import VersionEdit
from lsmkv.version.manifest import TreeState
from lsmkv.version.version import TableMeta, Version
from lsmkv_ext.entry import ttl_milliseconds
from lsmkv_ext.port.compression import CODECS
from lsmkv_ext.table.table import Table
from lsmkv_ext.tree import Tree

if TYPE_CHECKING:
    from lsmkv.version.version_set import Outputs, VersionSet

log = logging.getLogger("lsmkv")

_DROPPED = TreeState()
NEVER = (1 << 64) - 1  # no value has so many bytes


class StoredTree:
    """One of `VersionSet.trees`. The version set's locks guard it. After the keyspace was dropped it is empty."""

    def __init__(self, versions: VersionSet, live: Tree) -> None:
        self.versions = versions
        self.live = live
        self.shifts = 0  # sum of all level shifts since the database was opened
        self._filter_infos: dict[int, dict[str, Any]] = {}
        self._options: tuple[Options, Mapping[str, Any], Options] | None = None  # made from the first two

    @property
    def keyspace(self) -> int:
        """The id of the keyspace; 0 is the default one."""
        keyspace: int = self.live.keyspace
        return keyspace

    @property
    def state(self) -> TreeState:
        return self.versions.state.trees.get(self.keyspace, _DROPPED)

    @property
    def label(self) -> tuple[int, bytes]:
        """The id and the name of the keyspace, as tables state them."""
        return self.keyspace, self.state.name.encode()

    @property
    def current(self) -> Version:
        return self.state.version

    def judge_time(self) -> int:
        """The time by which plans judge expiries; 0 if no table has one."""
        return self.versions.judge_time(any(f.expiring for f in self.current.files()))

    @property
    def options(self) -> Options:
        """The options of the database, with those given for the keyspace."""
        base, given = self.versions.options, self.state.options
        if self._options is None or self._options[0] is not base or self._options[1] is not given:
            self._options = (base, given, base.for_keyspace(given))
        return self._options[2]

    def tune(self, options: Options) -> None:
        """Applies the options of the keyspace to what is in memory."""
        ratio, ttl = options.filter_shadow_ratio, options.default_ttl
        threshold, compression = self._large_values(options) or (NEVER, 0)
        self.live.set_shadow_period(round(1 / ratio) if ratio else 0)
        self.versions.engine.set_default_ttl(self.live, 0 if ttl is None else ttl_milliseconds(ttl))
        self.versions.engine.set_large_value(self.live, threshold, compression)

    @property
    def large_values(self) -> tuple[int, int] | None:
        """The threshold of large values and their compression, or None."""
        return self._large_values(self.options)

    def _large_values(self, options: Options) -> tuple[int, int] | None:
        values = options.large_values
        # The default threshold upgrades no database.
        if values is not None and values[0] == LARGE_VALUE and self.versions.state.format_version == 1:
            return None
        return values

    def compression_at(self, level: int) -> int:
        """The compression of new tables in a level. In a database of format 1 zstd counts as LZ4 until the upgrade."""
        codec = self.options.compression_at(level)
        return codec if self.versions.state.format_version > 1 else min(codec, CODECS["lz4"])

    @property
    def dropped(self) -> bool:
        return self.versions.trees.get(self.keyspace) is not self

    def tables_of(self, files: Iterable[TableMeta]) -> list[Table]:
        with self.versions.lock:
            self._require()
            return [self.versions.tables[f.number] for f in files]

    def tables(self) -> list[Table]:
        with self.versions.lock:
            return self.tables_of(self.current.files())

    def table_levels(self) -> list[list[Table]]:
        with self.versions.lock:
            return [self.tables_of(files) for files in self.current.levels]

    def filter_infos(self) -> dict[int, dict[str, Any]]:
        """Filter infos by file number. Cached, because the fill ratio needs a pass over the whole filter."""
        with self.versions.lock:
            known = self._filter_infos
            self._filter_infos = {t.number: known.get(t.number) or filter_info(t) for t in self.tables()}
            return dict(self._filter_infos)

    def forget_filters(self) -> None:
        """The tables may be those of another database from now on, under the same numbers."""
        self._filter_infos = {}

    def apply(
        self,
        opened: Sequence[Table] = (),
        outputs: Outputs | None = None,
        *,
        reason: str,
        last_seq: int | None = None,
        clock: int | None = None,
        **changes: Any,
    ) -> None:
        """Makes an edit of this keyspace durable, then visible, as `VersionSet.apply` does. `changes` are those of a
        `TreeEdit`.
        """
        edit = VersionEdit.of(keyspace=self.keyspace, reason=reason, last_seq=last_seq, clock=clock, **changes)
        with self.versions.commit:
            self._require()
            self.versions.apply(edit, opened, outputs=outputs)

    def _require(self) -> None:
        if self.dropped:
            if self.versions.engine.closed:
                raise ClosedError("the database is closed")
            raise KeyspaceError("the keyspace was dropped")


def filter_info(table: Table) -> dict[str, Any]:
    """The table's filter as `lsmkv.filters` takes it: a healthy one has the problem "ok". Has the compression too."""
    info: dict[str, Any] = {**table.filter_info, "compression": table.properties["compression"]}
    if info["problem"] is None:
        info["problem"] = "ok"
    elif info["problem"] != "absent":
        log.warning("%s: the filter cannot be used (%s); lookups read the table", table.path, info["problem"])
    return info
