"""What the tables tell about themselves, as hints for the picker."""

from __future__ import annotations

from lsmkv.compaction.filter_debt import FilterDebt
from lsmkv.compaction.picker import Hints
from lsmkv.options import Options
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import Version
from lsmkv_ext.compaction.coverage import covered

# A wasted read costs about as much as compacting this many bytes.
BYTES_PER_WASTED_READ = 16 << 10
# Fewer wasted reads prove nothing.
MIN_WASTED_READS = 1000
# Nor do fewer tombstones that scans passed.
MIN_DEAD_PASSED = 1000
# Scans that passed so much of a table will do so again, after a reopen or beside a put.
DEAD_PASSED_SHARE = 0.25


class ReadHints:
    def __init__(self, tree: StoredTree, debt: FilterDebt) -> None:
        self._tree = tree
        self._debt = debt
        self._l0_seek_heavy: frozenset[int] = frozenset()
        self._covered: tuple[Version | None, dict[int, tuple[int, bool]]] = (None, {})  # of one version

    def mark_l0_seek_heavy(self) -> None:
        """Seeks have probed the tables of L0 as often as their merge would cost."""
        self._l0_seek_heavy = frozenset(f.number for f in self._tree.current.levels[0])

    def read(self, version: Version, options: Options) -> Hints:
        known = self._coverage(version)
        return Hints(
            self._l0_seek_heavy | self._wasted_reads(),
            self._debt.due(version, options),
            frozenset(number for number, (_, whole) in known.items() if whole),
            {number: size for number, (size, _) in known.items()},
            self._tree.judge_time(),
            self._tree.versions.values_to_collect(),
            self._scanned_dead(),
        )

    def _coverage(self, version: Version) -> dict[int, tuple[int, bool]]:
        if self._covered[0] is not version:
            self._covered = (version, covered(self._tree.tables_of(version.files())))
        return self._covered[1]

    def _scanned_dead(self) -> frozenset[int]:
        """The tables in which scans passed many tombstones."""
        return frozenset(
            table.number
            for table in self._tree.tables()
            if table.dead_passed >= max(MIN_DEAD_PASSED, DEAD_PASSED_SHARE * table.n_entries)
        )

    def _wasted_reads(self) -> frozenset[int]:
        """The tables whose wasted reads have cost more than a compaction of them would."""
        return frozenset(
            table.number
            for table in self._tree.tables()
            if table.wasted > max(MIN_WASTED_READS, table.file_size // BYTES_PER_WASTED_READ)
        )
