"""The picker: which compaction to run next. Pure functions from a Version to a CompactionPlan.

The tree has levels L1..Ln without holes, Ln the largest. A level's target is the size of Ln divided by
`level_size_ratio` for each level between them, so all levels above Ln together are about a tenth of it, however full Ln
is. When L1's target grows too large to merge L0 into, a shift renumbers the levels and opens an empty L1 without moving
data; when the tree shrinks, it closes again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from lsmkv.options import MAX_LEVELS, Options
from lsmkv.version.version import EVERYTHING, KeyRange, TableMeta, Version, hull, total_size

# A table moves down unmerged, and an output grows, only while it overlaps at most this many target files two
# levels down.
GRANDPARENT_FILES = 10
# A merge also takes adjacent tables of its level while all inputs together stay below this many target files.
EXPANDED_FILES = 25
# If all tables of L0 together are smaller than a target file divided by this, they are merged with neighbours in L1
# rather than moved. Otherwise many short sessions or small flushes would fill L1 with tiny tables.
SMALL_DIVISOR = 8
# From this share of tombstones and expired entries on, a table is worth merging although its level is not full.
DEAD_SHARE = 0.5
# In the last level they hide nothing, so fewer are worth a rewrite.
BOTTOM_DEAD_SHARE = 0.25

# The reason of plans that a caller asked for.
MANUAL = "manual"
# The reason of plans that copy values out of a value log.
VALUE_LOG = "value log"
# The reason of plans that remove tombstones which scans had to pass.
SCANNED_TOMBSTONES = "scanned tombstones"
# The reason of plans that drop whole tables of expired entries.
EXPIRED = "expired"


class PlanKind(Enum):
    COMPACT = "compact"  # merge the inputs into output_level
    MOVE = "move"  # the inputs change their level, no byte is copied
    SHIFT = "shift"  # renumber the levels
    FILTERS = "filters"  # new filters for the inputs, in place
    DROP = "drop"  # the inputs leave the tree unread


@dataclass(frozen=True)
class CompactionPlan:
    kind: PlanKind
    level: int
    output_level: int
    upper: tuple[TableMeta, ...] = ()  # files of `level`
    lower: tuple[TableMeta, ...] = ()  # files of `output_level` to merge with
    grandparents: tuple[TableMeta, ...] = ()  # files below the output that it overlaps
    reason: str = ""
    shift: int = 0

    @property
    def inputs(self) -> tuple[TableMeta, ...]:
        return self.upper + self.lower

    @property
    def span(self) -> KeyRange:
        """The range of the output level that no other plan may write into."""
        return hull(self.inputs)

    @property
    def input_bytes(self) -> int:
        return total_size(self.inputs)

    def shifted(self, by: int) -> CompactionPlan:
        """The same plan after the levels were renumbered. Files of L0 stay in L0."""
        level = self.level + by if self.level else 0
        output = self.output_level + by if self.output_level else 0
        return replace(self, level=level, output_level=output)

    def __str__(self) -> str:
        names = ",".join(str(f.number) for f in self.upper)
        if self.lower:
            names += " + " + ",".join(str(f.number) for f in self.lower)
        return f"{self.kind.value} L{self.level}->L{self.output_level} [{names}] {self.reason}"


@dataclass(frozen=True)
class Hints:
    """What the tables know and the version does not. `seek_heavy`, `filter_debt` and `scanned_dead` are measured, and
    never needed for correctness.
    """

    seek_heavy: frozenset[int] = frozenset()  # files with many wasted reads
    filter_debt: frozenset[int] = frozenset()  # files whose filter does not suit their level
    dead: frozenset[int] = frozenset()  # files in which newer range tombstones of the tree delete everything
    covered: Mapping[int, int] = field(default_factory=dict)  # bytes that newer range tombstones delete, by file
    now: int = 0  # by which expiries are judged; 0: none has passed
    collect: frozenset[int] = frozenset()  # value logs out of which compactions copy the values
    scanned_dead: frozenset[int] = frozenset()  # files in which scans passed many tombstones


NO_HINTS = Hints()


# The shape of the tree --------------------------------------------------------------------------------------


def base_bytes(options: Options) -> int:
    """The bytes of one merge of L0: L1 should not be much smaller.

    A memtable of small records becomes a table of half its size, without headers and with compressed blocks.
    """
    return options.l0_compaction_trigger * options.write_buffer_size // 2


def level_targets(version: Version, options: Options) -> list[float]:
    """Target size per level; infinite for L0 (counted in files) and for the last level and below."""
    targets = [float("inf")] * MAX_LEVELS
    last = version.last_level
    target = float(version.sizes[last])
    for level in range(last - 1, 0, -1):
        target /= options.level_size_ratio
        # A target below a file's size would push every file down at once.
        targets[level] = max(target, float(options.target_file_size))
    return targets


def level_scores(version: Version, options: Options) -> list[float]:
    """How full each level is: L0 wants a compaction from 1 on, a deeper level above 1."""
    targets = level_targets(version, options)
    scores = [size / target for size, target in zip(version.sizes, targets, strict=True)]
    scores[0] = len(version.levels[0]) / options.l0_compaction_trigger
    return scores


def pending_bytes(version: Version, options: Options) -> int:
    """Bytes that compaction has to read until every level is within its target. Back pressure grows with them."""
    targets = level_targets(version, options)
    debt = 0.0
    carried = 0.0
    if len(version.levels[0]) >= options.l0_compaction_trigger:
        carried = version.sizes[0]
        debt += carried
    for level in range(1, version.last_level):
        excess = version.sizes[level] + carried - targets[level]
        if excess <= 0:
            break
        ratio = version.sizes[level + 1] / max(version.sizes[level], 1)
        debt += excess * (1 + min(ratio, options.level_size_ratio))
        carried = excess
    return int(debt)


def wanted_shift(version: Version, options: Options) -> int:
    """+1 if a new L1 should open, -1 if an empty one should close, else 0."""
    last = version.last_level
    if last == 0:
        return 0
    top = version.sizes[last] / options.level_size_ratio ** (last - 1)
    base = base_bytes(options)
    if top > base * options.level_size_ratio and last < MAX_LEVELS - 1:
        return 1
    # Half: a tree at the border must not open and close its L1 in turn.
    if last > 1 and not version.levels[1] and top * 2 < base:
        return -1
    return 0


# Choosing ---------------------------------------------------------------------------------------------------


def choose(
    version: Version, options: Options, busy: Sequence[CompactionPlan] = (), hints: Hints = NO_HINTS
) -> CompactionPlan | None:
    """The most useful plan that conflicts with none of `busy`, or None."""
    if any(plan.kind is PlanKind.SHIFT for plan in busy):
        return None
    shift = wanted_shift(version, options)
    # A running plan must not lose its output level, the L1 that closes or the last level.
    edge = 1 if shift < 0 else MAX_LEVELS - 1
    if shift and not any(plan.output_level == edge for plan in busy):
        return CompactionPlan(PlanKind.SHIFT, 0, 0, reason="grow" if shift > 0 else "shrink", shift=shift)
    plans = _candidates(version, options, hints, _Conflicts(busy))
    return next((plan for plan in plans if plan is not None), None)


class _Conflicts:
    """The files and ranges that the running plans have claimed."""

    def __init__(self, busy: Sequence[CompactionPlan]) -> None:
        self.files = frozenset(f.number for plan in busy for f in plan.inputs)
        self.spans = [(plan.output_level, plan.span) for plan in busy if plan.inputs]

    def free(self, files: Iterable[TableMeta]) -> bool:
        return not any(f.number in self.files for f in files)

    def allow(self, plan: CompactionPlan) -> bool:
        if not self.free(plan.inputs):
            return False
        span = plan.span
        return not any(level == plan.output_level and span.overlaps(other) for level, other in self.spans)


def conflict(plan: CompactionPlan, other: CompactionPlan) -> bool:
    """Whether the two must not run at the same time."""
    if PlanKind.SHIFT in (plan.kind, other.kind):
        return True
    return not _Conflicts([other]).allow(plan)


def _candidates(version: Version, options: Options, hints: Hints, taken: _Conflicts) -> Iterator[CompactionPlan | None]:
    """One plan of each kind that is due, the most urgent first; None where nothing can be picked."""
    yield _pick_dead(version, taken, hints)
    yield _pick_expired(version, taken, hints.now)
    scores = level_scores(version, options)
    full = [level for level, score in enumerate(scores) if score > 1 or (level == 0 and score == 1)]
    for level in sorted(full, key=lambda level: -scores[level]):
        yield (
            _pick_l0(version, options, taken) if level == 0 else _pick_level(version, options, taken, level, hints.now)
        )
    yield _pick_tombstones(version, options, taken, hints.now)
    yield _pick_bottom_tombstones(version, options, taken, hints.now)
    yield _pick_scanned(version, options, taken, hints.scanned_dead)
    yield _pick_seek_heavy(version, options, taken, hints)
    yield _pick_filter_debt(version, taken, hints)
    yield _pick_collection(version, options, taken, hints.collect)


def _pick_dead(version: Version, taken: _Conflicts, hints: Hints) -> CompactionPlan | None:
    """The tables of a level that no read needs any more. Dropping them frees their space and moves no byte.

    The range tombstones over a dead table stay in the tree as long as an older table overlaps them, whatever plans run
    meanwhile. They hide all that the dead table hid.
    """
    for level, files in enumerate(version.levels):
        useless = (f for f in files if f.number in hints.dead or _hides_nothing(version, level, f))
        chosen = tuple(f for f in useless if taken.free((f,)))
        if chosen:
            return CompactionPlan(PlanKind.DROP, level, level, upper=chosen, reason="covered")
    return None


def _hides_nothing(version: Version, level: int, f: TableMeta) -> bool:
    """Whether `f` holds only range tombstones, and no older table overlaps them."""
    return not f.entries and bool(f.range_tombstones) and not _older_overlap(version, level, f)


def _older_overlap(version: Version, level: int, f: TableMeta) -> bool:
    """Whether an older table overlaps `f`."""
    young = version.overlapping(0, f.range) if level == 0 else ()
    return any(other.min_seq < f.max_seq for other in young if other is not f) or bool(version.below(level, f.range))


def _pick_expired(version: Version, taken: _Conflicts, now: int) -> CompactionPlan | None:
    """The tables of a level in which everything is expired and hides nothing. Dropping them reads no byte."""
    for level, files in enumerate(version.levels):
        chosen = tuple(f for f in files if all_expired(f, now) and not _older_overlap(version, level, f))
        chosen = tuple(f for f in chosen if taken.free((f,)))
        if chosen:
            return CompactionPlan(PlanKind.DROP, level, level, upper=chosen, reason=EXPIRED)
    return None


def all_expired(f: TableMeta, now: int) -> bool:
    """Whether nothing in `f` is live. Its range tombstones may still hide something."""
    return bool(f.entries) and f.expired(now) == f.entries and f.max_expiry <= now and not f.range_tombstones


def _pick_l0(version: Version, options: Options, taken: _Conflicts, reason: str = "l0 count") -> CompactionPlan | None:
    """The oldest file of L0 with all files that overlap it, directly or through others."""
    files = version.levels[0]
    if not files or not taken.free(files):
        return None
    if total_size(files) < options.target_file_size // SMALL_DIVISOR:
        return _merge_small(version, options, taken, reason)
    chosen = close_over(files, files[-1].range)
    return _plan_down(version, options, taken, 0, chosen, reason)


def _merge_small(version: Version, options: Options, taken: _Conflicts, reason: str) -> CompactionPlan | None:
    """All of L0, with the neighbours in L1 that it can be merged with cheaply."""
    upper = version.levels[0]
    lower = _join_neighbours(version, options, upper)
    if len(upper) == 1 and not lower:
        return _plan_down(version, options, taken, 0, upper, reason)
    below = version.overlapping(2, hull(upper + lower))
    plan = CompactionPlan(PlanKind.COMPACT, 0, 1, upper, lower, below, reason)
    return plan if taken.allow(plan) else None


def _join_neighbours(version: Version, options: Options, upper: tuple[TableMeta, ...]) -> tuple[TableMeta, ...]:
    """The files of L1 that overlap `upper`, and those beside them while the output stays below a target file. A
    neighbour is worth it up to `level_size_ratio` times the bytes so far, as in any step down the tree: L1 keeps a
    table per order of magnitude.
    """
    level, span = version.levels[1], hull(upper)
    first = sum(f.range.before(span) for f in level)
    last = len(level) - sum(span.before(f.range) for f in level)
    size = total_size(upper) + total_size(level[first:last])

    def joins(f: TableMeta) -> bool:
        return f.size <= size * options.level_size_ratio and size + f.size <= options.target_file_size

    while True:
        if first and joins(level[first - 1]):
            first -= 1
            size += level[first].size
        elif last < len(level) and joins(level[last]):
            size += level[last].size
            last += 1
        else:
            return level[first:last]


def close_over(files: Sequence[TableMeta], span: KeyRange) -> tuple[TableMeta, ...]:
    """The files that overlap `span`, directly or through other files."""
    while True:
        chosen = tuple(f for f in files if f.range.overlaps(span))
        grown = hull(chosen).union(span) if chosen else span
        if grown == span:
            return chosen
        span = grown


def _pick_level(version: Version, options: Options, taken: _Conflicts, level: int, now: int) -> CompactionPlan | None:
    """The file with the least overlap below per byte of its own; tombstones and expired entries count extra."""

    def cost(f: TableMeta) -> float:
        overlap = total_size(version.overlapping(level + 1, f.range))
        return overlap / (f.size * (1 + 2 * dead_share(f, now)) + 1)

    return _first_plan(version, options, taken, level, sorted(version.levels[level], key=cost), "level size")


def _pick_tombstones(version: Version, options: Options, taken: _Conflicts, now: int) -> CompactionPlan | None:
    for level in range(1, version.last_level):
        heavy = [f for f in version.levels[level] if dead_share(f, now) >= DEAD_SHARE]
        heavy.sort(key=lambda f: dead_share(f, now), reverse=True)
        plan = _first_plan(version, options, taken, level, heavy, "tombstones")
        if plan is not None:
            return plan
    return None


def _pick_bottom_tombstones(version: Version, options: Options, taken: _Conflicts, now: int) -> CompactionPlan | None:
    """A table of the last level with many tombstones or expired entries, which hide nothing there, to be rewritten
    without them.
    """
    last = version.last_level
    if last == 0:
        return None
    for f in version.levels[last]:
        if not f.range_tombstones and dead_share(f, now) < BOTTOM_DEAD_SHARE:
            continue
        plan = CompactionPlan(PlanKind.COMPACT, last, last, upper=(f,), reason="bottom tombstones")
        if taken.allow(plan):
            return plan
    return None


def _pick_scanned(
    version: Version, options: Options, taken: _Conflicts, scanned: frozenset[int]
) -> CompactionPlan | None:
    """Brings a table whose tombstones cost scans time one level down, where they meet what they delete. In the last
    level it is rewritten without them.
    """
    for level, files in enumerate(version.levels if scanned else ()):
        for f in files:
            if f.number not in scanned or not f.deletes:
                continue
            if level == 0:
                plan = _pick_l0(version, options, taken, SCANNED_TOMBSTONES)
            elif level == version.last_level:
                plan = CompactionPlan(PlanKind.COMPACT, level, level, upper=(f,), reason=SCANNED_TOMBSTONES)
                plan = plan if taken.allow(plan) else None
            else:
                plan = _plan_down(version, options, taken, level, (f,), SCANNED_TOMBSTONES)
            if plan is not None:
                return plan
    return None


def l0_worth_merging(version: Version, options: Options, covered: Mapping[int, int] = NO_HINTS.covered) -> bool:
    """Whether an idle database should merge L0: L0 has several tables, overlaps L1, or has range tombstones over deeper
    tables, and the merge writes no more per byte than any other step down the tree. Bytes that range tombstones delete
    (`covered`) count as bytes of L0.
    """
    l0 = version.levels[0]
    if not l0:
        return False
    span = hull(l0)
    below = total_size(version.overlapping(1, span))
    gain = sum(covered.get(f.number, 0) for f in version.below(0, span)) if covered else 0
    if len(l0) == 1 and not below and not gain:
        return False
    return below <= (total_size(l0) + gain) * options.level_size_ratio


def _pick_seek_heavy(version: Version, options: Options, taken: _Conflicts, hints: Hints) -> CompactionPlan | None:
    if not hints.seek_heavy:
        return None
    worth = len(version.levels[0]) > 1 or l0_worth_merging(version, options, hints.covered)
    if worth and any(f.number in hints.seek_heavy for f in version.levels[0]):
        plan = _pick_l0(version, options, taken, "seeks")
        if plan is not None:
            return plan
    for level in range(1, version.last_level):
        heavy = [f for f in version.levels[level] if f.number in hints.seek_heavy]
        plan = _first_plan(version, options, taken, level, heavy, "seeks")
        if plan is not None:
            return plan
    return None


def _pick_filter_debt(version: Version, taken: _Conflicts, hints: Hints) -> CompactionPlan | None:
    for level, files in enumerate(version.levels):
        for f in files:
            if f.number in hints.filter_debt:
                plan = CompactionPlan(PlanKind.FILTERS, level, level, upper=(f,), reason="filter debt")
                if taken.allow(plan):
                    return plan
    return None


def _pick_collection(
    version: Version, options: Options, taken: _Conflicts, collect: frozenset[int]
) -> CompactionPlan | None:
    """A table that points into a value log to collect. It is rewritten in its level, which copies the values. Tables of
    L0 are merged down first: a rewrite could drop a tombstone that an older table of L0 needs.
    """
    for level, files in enumerate(version.levels if collect else ()):
        for f in files:
            if not any(use.number in collect for use in f.value_logs):
                continue
            if level == 0:
                plan = _pick_l0(version, options, taken, VALUE_LOG)
            else:
                plan = CompactionPlan(PlanKind.COMPACT, level, level, upper=(f,), reason=VALUE_LOG)
            if plan is not None and taken.allow(plan):
                return plan
    return None


def dead_share(f: TableMeta, now: int) -> float:
    """The share of tombstones and expired entries."""
    if f.range_tombstones:
        return 1.0
    return (f.deletes + f.expired(now)) / f.entries if f.entries else 0.0


def next_expiry(version: Version, now: int) -> int | None:
    """The time at which the next table will have enough expired entries for a plan, or None."""
    moments = []
    for level, files in enumerate(version.levels):
        share = BOTTOM_DEAD_SHARE if level == version.last_level else DEAD_SHARE
        for f in files:
            if f.expiring and f.max_expiry > now:
                moments.append(f.max_expiry)
                missing = share * f.entries - f.deletes
                if level and 0 < missing <= f.expiring:
                    moments.append(f.min_expiry + int(missing / f.expiring * (f.max_expiry - f.min_expiry)) + 1)
    return min((moment for moment in moments if moment > now), default=None)


def _first_plan(
    version: Version, options: Options, taken: _Conflicts, level: int, files: Sequence[TableMeta], reason: str
) -> CompactionPlan | None:
    for f in files:
        plan = _plan_down(version, options, taken, level, (f,), reason)
        if plan is not None:
            return plan
    return None


def _plan_down(
    version: Version,
    options: Options,
    taken: _Conflicts,
    level: int,
    upper: tuple[TableMeta, ...],
    reason: str,
) -> CompactionPlan | None:
    """The plan that brings `upper` one level down: a move if nothing overlaps, else a merge."""
    output = level + 1
    span = hull(upper)
    lower = version.overlapping(output, span)
    below = version.overlapping(output + 1, span) if output + 1 < MAX_LEVELS else ()
    disjoint = level > 0 or _disjoint(upper)
    # A move keeps the blocks, so it cannot change their compression.
    alike = options.compression_at(level) == options.compression_at(output)
    if not lower and disjoint and alike and total_size(below) <= GRANDPARENT_FILES * options.target_file_size:
        plan = CompactionPlan(PlanKind.MOVE, level, output, upper=upper, reason=reason)
        return plan if taken.allow(plan) else None
    if level > 0:
        upper, lower = _expand(version, options, taken, level, upper, lower)
        span = hull(upper + lower)
        below = version.overlapping(output + 1, span) if output + 1 < MAX_LEVELS else ()
    # The output may fill the gaps of the hull, so the files in them are inputs too.
    lower = version.overlapping(output, hull(upper + lower))
    plan = CompactionPlan(PlanKind.COMPACT, level, output, upper, lower, below, reason)
    return plan if taken.allow(plan) else None


def _disjoint(files: Sequence[TableMeta]) -> bool:
    ordered = sorted(files, key=lambda f: f.smallest)
    return all(a.range.before(b.range) for a, b in itertools.pairwise(ordered))


def _expand(
    version: Version,
    options: Options,
    taken: _Conflicts,
    level: int,
    upper: tuple[TableMeta, ...],
    lower: tuple[TableMeta, ...],
) -> tuple[tuple[TableMeta, ...], tuple[TableMeta, ...]]:
    """Adds files of the upper level that need no more files of the lower level."""
    if not lower:
        return upper, lower
    more = version.overlapping(level, hull(upper + lower))
    if len(more) == len(upper) or not taken.free(more):
        return upper, lower
    covered = version.overlapping(level + 1, hull(more))
    small = total_size(more) + total_size(covered) <= EXPANDED_FILES * options.target_file_size
    return (more, lower) if covered == lower and small else (upper, lower)


# Manual -----------------------------------------------------------------------------------------------------


def choose_range(
    version: Version,
    options: Options,
    level: int,
    span: KeyRange = EVERYTHING,
    busy: Sequence[CompactionPlan] = (),
    after: bytes = b"",
    now: int = 0,
) -> CompactionPlan | None:
    """One step of `compact_range`: brings files of `level` in `span`, from key `after` on, one level down. None if
    nothing is left there or it conflicts with `busy`. `now` judges expiries.
    """
    if any(plan.kind is PlanKind.SHIFT for plan in busy):
        return None
    taken = _Conflicts(busy)
    files = files_to_compact(version, level, span, after, now)
    if not files:
        return None
    if level == 0:
        return _plan_down(version, options, taken, 0, close_over(version.levels[0], hull(files)), MANUAL)
    if level == version.last_level:
        plan = CompactionPlan(PlanKind.COMPACT, level, level, upper=files[:1], reason=MANUAL)
        return plan if taken.allow(plan) else None
    return _plan_down(version, options, taken, level, _batch(options, files), MANUAL)


def files_to_compact(
    version: Version, level: int, span: KeyRange, after: bytes = b"", now: int = 0
) -> tuple[TableMeta, ...]:
    """The files of `level` that `compact_range` has to compact: in the last level only those with tombstones or expired
    entries.
    """
    files = version.overlapping(level, span)
    if level and level == version.last_level:
        files = tuple(f for f in files if f.deletes or f.range_tombstones or 0 < f.min_expiry <= now)
    return tuple(f for f in files if f.largest >= after) if level else files


def _batch(options: Options, files: Sequence[TableMeta]) -> tuple[TableMeta, ...]:
    """The first of `files`, few enough to show progress and free disk space on the way."""
    size = 0
    for count, f in enumerate(files):
        size += f.size
        if count and size > 4 * options.target_file_size:
            return tuple(files[:count])
    return tuple(files)
