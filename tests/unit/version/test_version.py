import pytest
from hypothesis import given
from hypothesis import strategies as st
from treetext import show, tree

from lsmkv.version.version import EVERYTHING, KeyRange, TableMeta, Version, hull


def test_l0_is_newest_first_and_deeper_levels_by_key():
    version = tree("""
        L0: 7[a-c] 9[b-d] 8[a-z]
        L1: 3[m-p] 2[a-c] 4[x-z]
    """)
    assert show(version) == "L0: 9 8 7 | L1: 2 3 4"


def test_overlapping_files_in_a_deep_level_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        tree("L1: 1[a-m] 2[m-z]")
    assert show(tree("L1: 1[a-m) 2[m-z]")) == "L1: 1 2"


def test_a_number_appears_once():
    with pytest.raises(ValueError, match="twice"):
        tree("""
            L0: 1[a-b]
            L1: 1[c-d]
        """)


def test_overlapping():
    version = tree("L1: 1[b-d] 2[f-h) 3[k-m]")
    numbers = lambda *span: [f.number for f in version.overlapping(1, KeyRange(*span))]  # noqa: E731
    assert numbers(b"a", b"a") == []
    assert numbers(b"a", b"b") == [1]
    assert numbers(b"a", b"b", True) == []
    assert numbers(b"d", b"f") == [1, 2]
    assert numbers(b"e", b"e") == []
    assert numbers(b"h", b"j") == []
    assert numbers(None, b"f") == [1, 2]
    assert numbers(b"g", None) == [2, 3]
    assert numbers(None, None) == [1, 2, 3]


def test_below_collects_all_deeper_levels_by_key():
    version = tree("""
        L1: 1[a-z]
        L2: 2[k-m]
        L3: 3[a-c] 4[l-z]
    """)
    assert [f.number for f in version.below(1)] == [3, 2, 4]
    assert [f.number for f in version.below(1, KeyRange(b"d", b"k"))] == [2]
    assert version.below(3) == []


def test_shift_opens_and_closes_l1():
    version = tree("""
        L0: 5[a-b]
        L1: 1[a-z]
    """)
    grown = version.shifted(1)
    assert show(grown) == "L0: 5 | L2: 1"
    assert grown.shifted(-1) == version
    with pytest.raises(ValueError, match="cannot shift"):
        version.shifted(-1)
    with pytest.raises(ValueError, match="cannot shift"):
        tree("L6: 1[a-b]").shifted(1)


KEYS = st.binary(max_size=2)


@given(st.lists(st.tuples(KEYS, KEYS, st.booleans()), min_size=1, max_size=6), KEYS)
def test_hull_covers_exactly_the_outermost_keys(spans, key):
    files = [
        TableMeta(number=i, size=1, entries=1, smallest=min(a, b), largest=max(a, b), largest_exclusive=x and a != b)
        for i, (a, b, x) in enumerate(spans, 1)
    ]
    point = KeyRange(key, key)
    if any(f.range.overlaps(point) for f in files):
        assert hull(files).overlaps(point)
    if all(f.range.before(point) for f in files):
        assert hull(files).before(point)
    if all(point.before(f.range) for f in files):
        assert point.before(hull(files))


def test_open_ranges():
    assert EVERYTHING.overlaps(KeyRange(b"a", b"b"))
    assert EVERYTHING.union(KeyRange(b"a", b"b")) == EVERYTHING
    assert KeyRange(b"c", None).union(KeyRange(b"a", b"b")) == KeyRange(b"a", None)
    assert Version().last_level == 0
