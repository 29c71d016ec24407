import pytest
from treetext import show, tree

from lsmkv.compaction.picker import (
    NO_HINTS,
    CompactionPlan,
    Hints,
    PlanKind,
    base_bytes,
    choose,
    choose_range,
    conflict,
    l0_worth_merging,
    level_scores,
    level_targets,
    pending_bytes,
    wanted_shift,
)
from lsmkv.options import KIB, MAX_LEVELS, Options
from lsmkv.version.version import KeyRange, TableMeta

# Sizes in the texts are plain numbers, so the options count in the same unit: a base of 16 KiB is one merge
# of L0.
OPTIONS = Options(write_buffer_size=4 * KIB, target_file_size=4 * KIB, l0_compaction_trigger=4)


def picked(text, busy=(), hints=NO_HINTS, options=OPTIONS):
    plan = choose(tree(text), options, busy, hints)
    return None if plan is None else str(plan)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("L0: 1[a-z] 2[a-z] 3[a-z]", None),
        ("L0: 1[a-z] 2[a-z] 3[a-z] 4[a-z]", "compact L0->L1 [4,3,2,1] l0 count"),
        ("L0: 1[a-b]512 2[c-d] 3[e-f] 4[g-h]", "move L0->L1 [1] l0 count"),
        ("L0: 1[a-c]512 2[x-z] 3[b-d] 4[d-e]", "compact L0->L1 [4,3,1] l0 count"),
        (
            """
            L0: 5[a-c] 6[b-k] 7[a-z] 8[m-n]
            L1: 1[a-b] 2[y-z]
            """,
            "compact L0->L1 [8,7,6,5 + 1,2] l0 count",
        ),
    ],
    ids=["empty", "below the trigger", "all overlap", "disjoint moves", "closure", "with L1"],
)
def test_l0(text, expected):
    assert picked(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L0: 1[a-b] 2[c-d] 3[e-f] 4[g-h]", "compact L0->L1 [4,3,2,1] l0 count"),
        ("L0: 1[a-c] 2[x-z] 3[b-d] 4[d-e]", "compact L0->L1 [4,3,2,1] l0 count"),
        (
            """
            L0: 5[k-l] 6[m-n] 7[o-p] 8[q-r]
            L1: 1[a-b]400 2[c-d]30 3[i-j]40 4[x-z]3700
            """,
            "compact L0->L1 [8,7,6,5 + 1,2,3] l0 count",
        ),
        (
            """
            L0: 5[k-l] 6[m-n] 7[o-p] 8[q-r]
            L1: 1[a-b]41
            """,
            "compact L0->L1 [8,7,6,5] l0 count",
        ),
        (
            """
            L0: 5[k-l]100 6[m-n]100 7[o-p]100 8[q-r]100
            L1: 1[a-b]3697 2[x-z]3000
            """,
            "compact L0->L1 [8,7,6,5 + 2] l0 count",
        ),
        (
            """
            L0: 4[k-l] 5[m-n] 6[o-p] 7[q-r]
            L1: 1[a-b]4 2[n-o]4000 3[x-z]4
            """,
            "compact L0->L1 [7,6,5,4 + 1,2,3] l0 count",
        ),
    ],
    ids=["disjoint", "gap", "neighbours", "too large for so little", "target file", "beside an overlap"],
)
def test_small_tables_of_l0_are_merged(text, expected):
    assert picked(text) == expected


def test_small_tables_leave_few_in_l1():
    """A flush of one byte at a time, ascending: L1 keeps a table per order of magnitude, and rewrites are bounded."""
    version, number, written = tree(""), 0, 0
    for _ in range(2000):
        number += 1
        name = f"k{number:06}".encode()
        version = version.with_levels({0: (*version.levels[0], file_of(number, name, name, 1))})
        plan = choose(version, OPTIONS)
        if plan is None:
            continue
        size = plan.input_bytes
        written += size if plan.kind is PlanKind.COMPACT else 0
        number += 1
        merged = file_of(number, plan.span.start, plan.span.stop, size)
        gone = {f.number for f in plan.inputs}
        kept = [f for f in version.levels[1] if f.number not in gone]
        young = [f for f in version.levels[0] if f.number not in gone]
        version = version.with_levels({0: young, 1: [*kept, merged]})
    assert len(version.levels[1]) <= 4
    assert written <= 40 * 2000


def file_of(number, smallest, largest, size):
    return TableMeta(
        number=number,
        size=size,
        entries=1,
        smallest=smallest,
        largest=largest,
        min_seq=number,
        max_seq=number,
    )


def test_targets_follow_the_last_level():
    version = tree("""
        L1: 1[a-z]90000
        L2: 2[a-z]800000
        L3: 3[a-z]5000000
    """)
    targets = level_targets(version, OPTIONS)
    assert targets[1:4] == [50000.0, 500000.0, float("inf")]
    assert [round(score, 2) for score in level_scores(version, OPTIONS)[1:4]] == [1.8, 1.6, 0.0]


def test_a_full_level_gives_the_file_with_least_overlap():
    assert (
        picked("""
            L1: 1[a-c]9000 2[d-f]9000
            L2: 3[a-b]9000 4[c-c]9000 5[d-d]50000
        """)
        == "compact L1->L2 [1 + 3,4] level size"
    )


def test_a_file_with_nothing_below_moves():
    assert (
        picked("""
            L1: 1[a-c]9000 2[m-n]9000
            L2: 3[a-b]50000
        """)
        == "move L1->L2 [2] level size"
    )


def test_no_move_across_too_much_of_the_level_after():
    assert (
        picked("""
            L1: 1[a-c]9000
            L2: 2[x-z]1000
            L3: 3[a-b]60000
        """)
        == "compact L1->L2 [1] level size"
    )


def test_neighbours_come_along_when_they_cost_nothing_below():
    assert (
        picked("""
            L1: 1[a-b]5000 2[c-d]5000 3[k-z]5000
            L2: 4[a-f]9000 5[k-z]60000
        """)
        == "compact L1->L2 [1,2 + 4] level size"
    )


def test_busy_files_are_left_alone():
    text = """
        L1: 1[a-c]9000 2[d-f]9000
        L2: 3[a-b]9000 5[d-d]50000
    """
    first = choose(tree(text), OPTIONS)
    assert str(first) == "compact L1->L2 [1 + 3] level size"
    second = choose(tree(text), OPTIONS, [first])
    assert str(second) == "compact L1->L2 [2 + 5] level size"
    assert choose(tree(text), OPTIONS, [first, second]) is None


def test_two_plans_never_write_the_same_range_of_a_level():
    """Although they share no file: the outputs of one may fill the gap between its inputs."""
    around = CompactionPlan(PlanKind.COMPACT, 1, 2, upper=tree("L1: 1[a-c] 4[g-h]").levels[1])
    within, beside = (CompactionPlan(PlanKind.MOVE, 1, 2, upper=(f,)) for f in tree("L1: 2[d-e] 3[x-y]").levels[1])
    elsewhere = CompactionPlan(PlanKind.MOVE, 2, 3, upper=within.upper)
    assert conflict(around, within) and conflict(within, around)
    assert not conflict(around, beside)
    assert not conflict(around, elsewhere)


def test_l0_waits_for_a_file_that_is_on_its_way_down():
    version = tree("""
        L0: 20[a-a] 21[a-z] 22[z-z] 23[c-d]
        L1: 1[f-g]9000
        L2: 3[x-z]9000
    """)
    deep = choose(version, OPTIONS)
    assert str(deep) == "move L1->L2 [1] level size"
    # L0 spans file 1, which is on its way down.
    assert choose(version, OPTIONS, [deep]) is None


def test_l0_waits_for_the_merge_of_l0_that_runs():
    text = "L0: 1[a-z] 2[a-z] 3[a-z] 4[a-z] 5[a-z] 6[a-z] 7[a-z] 8[a-z]"
    running = choose(tree("L0: 1[a-z] 2[a-z] 3[a-z] 4[a-z]"), OPTIONS)
    assert picked(text, [running]) is None


def test_tombstone_heavy_files_go_down_and_leave_at_the_bottom():
    text = """
        L1: 1[a-c]/6d 2[d-f]/4d
        L2: 3[a-b]60000
    """
    assert picked(text) == "compact L1->L2 [1 + 3] tombstones"
    assert picked("L1: 1[a-c]/2d 2[d-f]/3d") == "compact L1->L1 [2] bottom tombstones"
    assert picked("L1: 1[a-c] 2[d-f]/r") == "compact L1->L1 [2] bottom tombstones"
    assert picked("L1: 1[a-c]/2d") is None


def dead(*numbers):
    return Hints(dead=frozenset(numbers))


def test_dead_tables_are_dropped_first():
    text = """
        L0: 9[a-m)/R 6[a-c] 5[a-z] 4[a-z]
        L1: 1[a-f] 2[g-k] 3[l-z]
        L2: 7[a-z]60000
    """
    assert picked(text) == "compact L0->L1 [9,6,5,4 + 1,2,3] l0 count"
    assert picked(text, hints=dead(1, 2)) == "drop L1->L1 [1,2] covered"
    assert picked(text, hints=dead(1, 2, 6)) == "drop L0->L0 [6] covered"


def test_a_dead_table_that_a_plan_reads_is_left_to_it():
    text = "L1: 1[a-f] 2[g-k] 3[l-z]"
    running = CompactionPlan(PlanKind.COMPACT, 1, 2, upper=tree(text).levels[1][:1])
    assert picked(text, [running], dead(1, 2)) == "drop L1->L1 [2] covered"
    assert picked(text, [running], dead(1)) is None


def test_a_dropping_plan_keeps_others_from_its_tables():
    version = tree("L1: 1[a-f]/9d 2[g-k]\nL2: 3[a-f]60000")
    dropping = choose(version, OPTIONS, (), dead(1))
    assert choose(version, OPTIONS, [dropping], dead(1)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L0: 9[a-m)/R", "drop L0->L0 [9] covered"),
        ("L0: 9[a-m)/R 5[n-z]", "drop L0->L0 [9] covered"),
        ("L0: 9[a-m)/R 5[m-z]", "drop L0->L0 [9] covered"),
        ("L0: 9[a-m)/R 10[a-z]", "drop L0->L0 [9] covered"),
        ("L0: 9[a-m)/R 5[b-c]", None),
        ("L0: 9[a-m)/R\nL1: 1[l-z]", None),
        ("L0: 9[a-m)/r", None),
        ("L1: 9[a-m)/R 1[n-z]", "drop L1->L1 [9] covered"),
    ],
    ids=["alone", "apart", "adjacent", "below a newer table", "older in L0", "older below", "with entries", "deep"],
)
def test_range_tombstones_over_nothing_are_dropped(text, expected):
    assert picked(text) == expected


def test_an_idle_merge_of_l0_counts_what_it_deletes():
    version = tree("L0: 9[a-m)/R\nL1: 1[l-z]1000")
    assert not l0_worth_merging(version, OPTIONS)
    assert not l0_worth_merging(version, OPTIONS, {1: 90})
    assert l0_worth_merging(version, OPTIONS, {1: 100})


def test_range_tombstones_leave_l0_for_what_they_delete_deeper():
    version = tree("L0: 9[a-m)/R\nL1: 2[x-z]4000\nL2: 1[l-n]30000")
    assert not l0_worth_merging(version, OPTIONS)
    assert l0_worth_merging(version, OPTIONS, {1: 1})
    hints = Hints(seek_heavy=frozenset({9}), covered={1: 1})
    assert str(choose(version, OPTIONS, (), hints)) == "move L0->L1 [9] seeks"


def test_seek_heavy_files_go_down():
    text = """
        L1: 1[a-c] 2[d-f]
        L2: 3[a-z]60000
    """
    assert picked(text) is None
    assert picked(text, hints=Hints(seek_heavy=frozenset({2}))) == "compact L1->L2 [1,2 + 3] seeks"
    assert picked("L0: 1[a-c] 2[b-d]", hints=Hints(seek_heavy=frozenset({2}))) == "compact L0->L1 [2,1] seeks"
    assert picked("L1: 1[a-c]", hints=Hints(seek_heavy=frozenset({1}))) is None


def test_tables_in_which_scans_passed_tombstones_go_down():
    hints = Hints(scanned_dead=frozenset({2}))
    text = """
        L1: 1[a-c] 2[d-f]/1d
        L2: 3[a-z]60000
    """
    assert picked(text) is None
    assert picked(text, hints=hints) == "compact L1->L2 [1,2 + 3] scanned tombstones"
    assert picked("L0: 1[a-c] 2[b-d]/1d", hints=hints) == "compact L0->L1 [2,1] scanned tombstones"
    assert picked("L1: 1[a-c] 2[d-f]/1d", hints=hints) == "compact L1->L1 [2] scanned tombstones"
    assert picked("L1: 1[a-c] 2[d-f]", hints=hints) is None


def test_filter_debt_is_paid_last():
    hints = Hints(filter_debt=frozenset({1, 2}))
    assert picked("L0: 1[a-z] 2[a-z] 3[a-z] 4[a-z]", hints=hints) == "compact L0->L1 [4,3,2,1] l0 count"
    plan = choose(tree("L1: 1[a-c] 2[d-f]"), OPTIONS, (), hints)
    assert str(plan) == "filters L1->L1 [1] filter debt"
    assert picked("L1: 1[a-c] 2[d-f]", [plan], hints) == "filters L1->L1 [2] filter debt"


def test_levels_grow_and_shrink_by_renumbering():
    base = base_bytes(OPTIONS)
    assert wanted_shift(tree(f"L1: 1[a-z]{base * 10}"), OPTIONS) == 0
    full = tree(f"L1: 1[a-z]{base * 10 + 1}")
    plan = choose(full, OPTIONS)
    assert (plan.kind, plan.shift) == (PlanKind.SHIFT, 1)
    assert show(full.shifted(1)) == "L2: 1"
    assert wanted_shift(full.shifted(1), OPTIONS) == 0
    assert wanted_shift(tree(f"L2: 1[a-z]{base * 10 // 2 - 10}"), OPTIONS) == -1
    # The level that would vanish still has a file.
    assert wanted_shift(tree("L1: 2[a-z]\nL2: 1[a-z]100"), OPTIONS) == 0


def test_a_shift_waits_for_no_one_but_others_wait_for_it():
    full = tree(f"L0: 2[a-z] 3[a-z] 4[a-z] 5[a-z]\nL1: 1[a-z]{base_bytes(OPTIONS) * 10 + 1}")
    shift = choose(full, OPTIONS)
    assert choose(full, OPTIONS, [shift]) is None
    merge = choose(tree("L0: 2[a-z] 3[a-z] 4[a-z] 5[a-z]"), OPTIONS)
    assert choose(full, OPTIONS, [merge]).kind is PlanKind.SHIFT
    # ... except that L1 does not close while a merge writes to it.
    small = tree("L0: 2[a-z] 3[a-z] 4[a-z] 5[a-z]\nL2: 1[a-z]100")
    assert choose(small, OPTIONS).shift == -1
    assert choose(small, OPTIONS, [merge]) is None


def test_no_level_opens_while_a_plan_writes_to_the_last_one():
    """Its output would be left without a level."""
    version = tree("L5: 1[a-b]9999999999 2[c-d]")
    assert wanted_shift(version, OPTIONS) == 1
    assert picked_kind(version) is PlanKind.SHIFT
    running = CompactionPlan(PlanKind.COMPACT, MAX_LEVELS - 2, MAX_LEVELS - 1, upper=version.levels[5][1:])
    assert picked_kind(version, [running]) is not PlanKind.SHIFT


def picked_kind(version, busy=()):
    plan = choose(version, OPTIONS, busy)
    return plan and plan.kind


def test_a_tree_that_uses_every_level():
    text = "\n".join(f"L{n}: {n + 1}[a-m]{10**n}/9d {n + 11}[n-z]{10**n}/1d" for n in range(MAX_LEVELS))
    version = tree(text)
    everything = Hints(*[frozenset(f.number for f in version.files())] * 2)
    assert version.last_level == MAX_LEVELS - 1
    assert level_targets(version, OPTIONS)[-1] == float("inf")
    assert wanted_shift(version, OPTIONS) == 0
    running = []
    while (plan := choose(version, OPTIONS, running, everything)) is not None:
        assert plan.output_level < MAX_LEVELS
        running.append(plan)
    assert max(plan.output_level for plan in running) == MAX_LEVELS - 1
    for level in range(MAX_LEVELS):
        plan = choose_range(version, OPTIONS, level)
        assert plan.output_level == min(level + 1, MAX_LEVELS - 1)


def test_space_above_the_last_level_stays_near_a_tenth():
    version = tree("""
        L1: 1[a-z]80000
        L2: 2[a-z]800000
        L3: 3[a-z]8000000
    """)
    assert choose(version, OPTIONS) is None
    assert version.total_bytes / version.sizes[3] == pytest.approx(1.11)


def test_a_running_plan_follows_a_shift():
    plan = choose(tree("L0: 1[a-z] 2[a-z] 3[a-z] 4[a-z]\nL1: 5[a-z]"), OPTIONS)
    moved = plan.shifted(1)
    assert (moved.level, moved.output_level) == (0, 2)
    assert moved.inputs == plan.inputs


def test_pending_bytes_grow_with_the_debt():
    calm = tree("L0: 1[a-z]100\nL1: 2[a-z]1000")
    full = tree("L0: 1[a-z]100 2[a-z]100 3[a-z]100 4[a-z]100\nL1: 5[a-z]1000")
    deep = tree("L1: 5[a-z]90000\nL2: 6[a-z]100000")
    assert pending_bytes(calm, OPTIONS) == 0
    assert pending_bytes(full, OPTIONS) >= 400
    assert pending_bytes(deep, OPTIONS) > 80000


def test_compact_range_moves_every_level_down_and_the_last_loses_its_tombstones():
    version = tree("""
        L0: 9[a-c] 8[x-z]
        L1: 1[a-d] 2[m-n]
        L2: 3[a-b]60000 4[m-z]/1d
    """)
    everything = KeyRange(None, None)
    assert str(choose_range(version, OPTIONS, 0)) == "compact L0->L1 [9,8 + 1,2] manual"
    assert str(choose_range(version, OPTIONS, 0, KeyRange(b"y", b"z"))) == "move L0->L1 [8] manual"
    assert str(choose_range(version, OPTIONS, 1)) == "compact L1->L2 [1,2 + 3,4] manual"
    assert str(choose_range(version, OPTIONS, 2)) == "compact L2->L2 [4] manual"
    assert choose_range(version, OPTIONS, 2, everything, after=b"zz") is None
    assert choose_range(version, OPTIONS, 1, KeyRange(b"e", b"k")) is None
