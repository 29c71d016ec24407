"""Which filter a table should have: pure functions of the options, the tree and the read counters.

`observe` turns a version and the engine's counters into one `LevelLoad` per level. `FilterPolicy.of` turns these and
the options into bits per level. `FilterPolicy.debt` compares them with the filter that a table has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lsmkv.filters.curves import Curve, curve_for
from lsmkv.filters.kinds import Kind, kinds_of
from lsmkv.filters.planner import LevelShape, solve_memory, solve_rate
from lsmkv.options import Options
from lsmkv.version.version import TableMeta, Version
from lsmkv_ext.filter.fuse import min_keys, width_for

FUSE = 2  # TableMeta.filter_kind

# Fewer reads than this prove nothing. From then on the prior, one probe per read, weighs as much as PRIOR reads.
MIN_READS = 1000
PRIOR = 1000
# The average of "auto" without a memory budget or a target rate.
AUTO_BITS = 10.0
# Solved bits move a little with every flush; only a filter this far off is worth a rebuild.
SOLVED_TOLERANCE = (0.25, 0.02)  # bits, or share of the wanted bits
EXACT_TOLERANCE = (0.25, 0.0)
# Entries of a table of L0 when none exists yet: write_buffer_size in entries of this many bytes.
ASSUMED_ENTRY = 128


@dataclass(frozen=True)
class LevelLoad:
    """One level: its entries, its runs (the tables that a lookup may have to probe), the keys of one table and, where
    measured, the probes (`reach`) and the wasted probes per lookup.
    """

    entries: int = 0  # with the prefixes in its filters, which take as many bits each
    runs: int = 1
    reach: float | None = None
    wasted_probes: float | None = None
    table_keys: int = 0


# --- loads ---


def observe(version: Version, options: Options, counters: Mapping[str, Any] | None = None) -> tuple[LevelLoad, ...]:
    """Measures the levels. L0 counts as full, as it will be again and again."""
    reach, wasted = _measured(counters or {})
    loads = []
    for level, files in enumerate(version.levels):
        entries, runs = sum(max(f.entries, f.filter_keys) for f in files), 1
        table_keys = entries // len(files) if files else options.target_file_size // ASSUMED_ENTRY
        if level == 0:
            runs = max(len(files), options.l0_compaction_trigger)
            per_run = entries // len(files) if files else options.write_buffer_size // ASSUMED_ENTRY
            entries = per_run * runs
        loads.append(LevelLoad(entries, runs, reach.get(level), wasted.get(level), table_keys))
    return tuple(loads)


def _measured(counters: Mapping[str, Any]) -> tuple[dict[int, float], dict[int, float]]:
    gets = counters.get("gets", 0)
    levels = counters.get("levels", ())
    if gets < MIN_READS or not levels:
        return {}, {}
    probed = [_count(c, "checks") + _count(c, "unfiltered") + _count(c, "fail_open") for c in levels]
    found = [_count(c, "true_positives") for c in levels]
    # Other hits were in tables without a filter: they count for the deepest such level.
    in_memory = counters.get("memtable_hits", 0) + counters.get("row_hits", 0)
    elsewhere = counters.get("gets_found", 0) - in_memory - sum(found)
    bare = [i for i, c in enumerate(levels) if _count(c, "unfiltered") + _count(c, "fail_open")]
    if bare and elsewhere > 0:
        found[bare[-1]] += elsewhere
    reach = {i: _smoothed(n, gets) for i, n in enumerate(probed)}
    wasted = {i: _smoothed(max(n - f, 0), gets) for i, (n, f) in enumerate(zip(probed, found, strict=True))}
    return reach, wasted


def _count(counters: Mapping[str, Any], name: str) -> int:
    return int(counters.get(name, 0))


def _smoothed(count: float, gets: int) -> float:
    return (count + PRIOR) / (gets + PRIOR)


def is_bottommost(version: Version, level: int, file: TableMeta) -> bool:
    """Nothing below `level` overlaps the file's keys."""
    return level > 0 and not version.below(level, file.range)


# --- bits per level ---


@dataclass(frozen=True)
class FilterPolicy:
    """Bits per key and kind of filter for every level, and the bits of output that is bottommost for its key range."""

    bits: tuple[float, ...]
    bottom_bits: float | None  # None: as its level
    solved: bool  # the bits follow the tree, so they are compared loosely
    prefix: tuple[int, int] = (0, 0)
    kinds: tuple[Kind, ...] = (Kind(False, True),)
    curves: tuple[Curve, ...] = (Curve(),)

    @classmethod
    def of(cls, options: Options, loads: Sequence[LevelLoad]) -> FilterPolicy:
        solved = _is_solved(options)
        bottom = max((i for i, load in enumerate(loads) if i and load.entries), default=0)
        kinds = kinds_of(options.filter, len(loads), bottom)
        curves = tuple(curve_for(kind.fuse, load.table_keys) for kind, load in zip(kinds, loads, strict=True))
        bits = _solve(options, loads, curves, bottom) if solved else _given(options, curves)
        bottom_bits = _bottom_bits(options, loads[bottom], bits[bottom], curves[bottom])
        return cls(bits, bottom_bits, solved, options.prefix, kinds, curves)

    def within(self, limit: int, entries: int) -> FilterPolicy:
        """At most the bits per key with which the filters of `entries` keys take `limit` bytes."""
        most = 8 * limit / max(entries, 1)
        if max(self.bits) <= most:
            return self
        bottom = None if self.bottom_bits is None else min(self.bottom_bits, most)
        # Compared loosely: they follow the tree.
        return replace(self, bits=tuple(min(bits, most) for bits in self.bits), bottom_bits=bottom, solved=True)

    def bits_for(self, level: int, *, bottommost: bool = False) -> float:
        """`bottommost`: an output of a compaction, never of a flush, with nothing below its key range."""
        if bottommost and self.bottom_bits is not None:
            return self.bottom_bits
        return self.bits[min(level, len(self.bits) - 1)]

    def millibits_for(self, level: int, *, bottommost: bool = False) -> int:
        return round(self.bits_for(level, bottommost=bottommost) * 1000)

    def milliwidth_for(self, level: int, *, bottommost: bool = False) -> int:
        """The mean width x 1000 of the fingerprints in fuse filters; 0: Bloom filters."""
        level = min(level, len(self.kinds) - 1)
        bits = self.bits_for(level, bottommost=bottommost)
        if not self.kinds[level].fuse:
            return 0
        # Given bits are rounded to a width. Solved bits are met on average, by tables of two widths.
        width = self.curves[level].width(bits) if self.solved and self.curves[level].fuse else width_for(bits)
        return round(width * 1000)

    def _owes_kind(self, has: FilterState, level: int, milliwidth: int) -> bool:
        kind = self.kinds[min(level, len(self.kinds) - 1)]
        if has.fuse == kind.fuse or not kind.strict:
            return False
        return not kind.fuse or (milliwidth > 0 and has.keys >= min_keys())

    def debt(self, has: FilterState, level: int, *, bottommost: bool, seed: int | None = None) -> str | None:
        """Why the filter does not suit its table; None if it does."""
        wanted = self.bits_for(level, bottommost=bottommost and level > 0)
        if has.problem not in ("ok", "absent"):
            return "damaged" if wanted else None
        if has.problem == "absent" or not has.millibits:
            return "absent" if wanted else None
        if not wanted:
            return "unwanted"
        if seed is not None and has.seed is not None and has.seed != seed:
            return "seed"
        if has.prefix is not None and has.prefix != self.prefix:
            return "prefix"
        if self._owes_kind(has, level, self.milliwidth_for(level, bottommost=bottommost and level > 0)):
            return "kind"
        bits, share = SOLVED_TOLERANCE if self.solved else EXACT_TOLERANCE
        if abs(has.millibits / 1000 - wanted) > max(bits, share * wanted):
            return "bits"
        return None


@dataclass(frozen=True)
class FilterState:
    """The filter of a table. None: unknown until the table is opened."""

    millibits: int
    problem: str = "ok"
    seed: int | None = None
    prefix: tuple[int, int] | None = None
    fuse: bool = False
    keys: int = 0

    @classmethod
    def of(cls, file: TableMeta, info: Mapping[str, Any] | None = None) -> FilterState:
        """`info` is the open table's `filter_info`."""
        if info is None:
            problem, fuse = "ok" if file.filter_bytes else "absent", file.filter_kind == FUSE
            return cls(file.millibits, problem, fuse=fuse, keys=file.filter_keys)
        prefix = (info.get("prefix_kind", 0), info.get("prefix_arg", 0))
        fuse, keys = info.get("kind") == "fuse", info.get("n_keys", 0)
        return cls(info.get("millibits", 0), info.get("problem", "ok"), info.get("seed"), prefix, fuse, keys)


# --- debt of a tree ---


def debts(
    version: Version,
    policy: FilterPolicy,
    infos: Mapping[int, Mapping[str, Any]] | None = None,
    seed: int | None = None,
) -> dict[int, str]:
    """File number -> why its filter should be rebuilt."""
    found = {}
    for level, files in enumerate(version.levels):
        for file in files:
            state = FilterState.of(file, infos.get(file.number) if infos else None)
            reason = policy.debt(state, level, bottommost=is_bottommost(version, level, file), seed=seed)
            if reason is not None:
                found[file.number] = reason
    return found


def debt_ratio(version: Version, owed: Mapping[int, str]) -> float:
    """Share of the tree's entries that lie in tables with filter debt."""
    total = sum(f.entries for f in version.files())
    return sum(f.entries for f in version.files() if f.number in owed) / total if total else 0.0


# --- from the options ---


def _is_solved(options: Options) -> bool:
    """A list and 0 are taken literally; "auto" or a memory budget is solved over the levels."""
    if isinstance(options.bits_per_key, tuple) or options.bits_per_key == 0:
        return False
    return options.bits_per_key == "auto" or options.filter_memory is not None


def _given(options: Options, curves: Sequence[Curve]) -> tuple[float, ...]:
    given = options.bits_per_key
    if isinstance(given, tuple):
        return tuple(given[min(level, len(given) - 1)] for level in range(len(curves)))
    if given and options.target_fpr is not None:
        return tuple(curve.bits_for(options.target_fpr) for curve in curves)
    return (float(given),) * len(curves)


def _solve(options: Options, loads: Sequence[LevelLoad], curves: Sequence[Curve], bottom: int) -> tuple[float, ...]:
    """The best split of the budget, weighted by the probes of each level; with `optimize_filters_for_hits` by the
    wasted ones, since a filter saves nothing for a lookup that finds its key.
    """
    levels = [_shape(load, curve, options) for load, curve in zip(loads, curves, strict=True)]
    if options.optimize_filters_for_hits is True and bottom:
        levels[bottom] = LevelShape(0)
    if options.filter_memory is not None:
        return solve_memory(levels, options.filter_memory)
    if options.target_fpr is not None:
        return solve_rate(levels, options.target_fpr)
    return solve_memory(levels, sum(level.entries for level in levels) * AUTO_BITS / 8)


def _shape(load: LevelLoad, curve: Curve, options: Options) -> LevelShape:
    weight = load.wasted_probes if options.optimize_filters_for_hits == "auto" else load.reach
    # An empty level will be small at first: it counts as one entry and gets the most bits.
    return LevelShape(max(load.entries, 1), load.runs, weight, curve)


def _bottom_bits(options: Options, load: LevelLoad, bits: float, curve: Curve) -> float | None:
    mode = options.optimize_filters_for_hits
    if mode is True:
        return 0.0
    if mode == "auto" and not _is_solved(options):
        wasted = load.wasted_probes
        # At one wasted probe per lookup the given bits are worth their price; fewer wasted probes deserve fewer bits.
        return None if wasted is None else min(curve.best_bits(wasted, curve.price_of(bits)), bits)
    return None
