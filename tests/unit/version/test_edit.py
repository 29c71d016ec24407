import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treetext import parse_file, show, tree

from lsmkv.errors import CorruptionError
from lsmkv.options import MAX_LEVELS
from lsmkv.version.edit import MAX_REASON, VersionEdit, decode_edit
from lsmkv.version.version import TableMeta, Version

U64 = st.integers(0, (1 << 64) - 1)
NUMBERS = st.integers(1, (1 << 62) - 1)
LEVELS = st.integers(0, MAX_LEVELS - 1)


@st.composite
def files(draw):
    smallest, largest = sorted([draw(st.binary(max_size=40)), draw(st.binary(max_size=40))])
    low, high = sorted([draw(U64), draw(U64)])
    return TableMeta(
        number=draw(NUMBERS),
        size=draw(U64),
        entries=draw(U64),
        deletes=draw(U64),
        range_tombstones=draw(U64),
        smallest=smallest,
        largest=largest,
        largest_exclusive=draw(st.booleans()),
        min_seq=low,
        max_seq=high,
        global_seq=draw(U64),
        raw_bytes=draw(U64),
        filter_bytes=draw(U64),
        filter_keys=draw(U64),
        millibits=draw(st.integers(0, (1 << 32) - 1)),
        k=draw(st.integers(0, 30)),
        filter_level=draw(LEVELS),
    )


EDITS = st.builds(
    VersionEdit,
    seed=st.none() | U64,
    next_file=st.none() | NUMBERS,
    last_seq=st.none() | U64,
    log_number=st.none() | NUMBERS,
    logged=st.none() | st.booleans(),
    shift=st.sampled_from([-1, 0, 1]),
    removed=st.lists(NUMBERS, max_size=4).map(tuple),
    moved=st.lists(st.tuples(NUMBERS, LEVELS), max_size=4).map(tuple),
    added=st.lists(st.tuples(LEVELS, files()), max_size=4).map(tuple),
    time_us=U64,
    reason=st.text(st.characters(codec="ascii"), max_size=MAX_REASON),
)


@given(EDITS)
def test_what_is_encoded_comes_back(edit):
    assert decode_edit(edit.encode()) == edit


@given(EDITS, st.data())
def test_a_cut_edit_is_refused_or_a_shorter_one_never_a_crash(edit, data):
    encoded = edit.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    with contextlib.suppress(CorruptionError):
        decode_edit(cut)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data):
    with contextlib.suppress(CorruptionError):
        decode_edit(data)


def test_unknown_tags():
    assert decode_edit(b"\x7f\x03abc") == VersionEdit()
    with pytest.raises(CorruptionError, match="unknown tag 63"):
        decode_edit(b"\x3f\x00")


@pytest.mark.parametrize(
    "data",
    [
        b"\x02",
        b"\x02\x05\x01",
        b"\x02\x02\x01\x01",
        b"\x02\x01\x01\x02\x01\x01",
        b"\x08\x01\x00",
        b"\x02\x0b" + b"\xff" * 11,
        b"\x07\x02\x01\x07",
    ],
    ids=[
        "no length",
        "length beyond end",
        "bytes too many",
        "twice",
        "shift by 0",
        "endless varint",
        "no such level",
    ],
)
def test_damage_is_named(data):
    with pytest.raises(CorruptionError, match="000007"):
        decode_edit(data, "MANIFEST-000007", 192)


def test_apply_removes_moves_and_adds():
    version = tree("""
        L0: 5[a-c] 4[d-f]
        L1: 1[a-z]
    """)
    edit = VersionEdit(removed=(5, 1), moved=((4, 1),), added=((1, parse_file("6[a-c]")),))
    assert show(edit.apply(version)) == "L1: 6 4"


def test_apply_shifts_first():
    edit = VersionEdit(shift=1, added=((1, parse_file("6[a-c]")),))
    assert show(edit.apply(tree("L1: 1[a-z]"))) == "L1: 6 | L2: 1"


@pytest.mark.parametrize("edit", [VersionEdit(removed=(9,)), VersionEdit(moved=((9, 2),)), VersionEdit(shift=-1)])
def test_an_edit_that_does_not_fit_is_refused(edit):
    with pytest.raises(ValueError):
        edit.apply(tree("L1: 1[a-z]"))


def test_an_edit_that_changes_no_file_keeps_the_version_itself():
    version = tree("L1: 1[a-z]")
    assert VersionEdit(last_seq=4).apply(version) is version
    assert VersionEdit().apply(Version()) == Version()


@pytest.mark.parametrize("level", [-1, MAX_LEVELS])
def test_an_edit_to_a_level_that_does_not_exist_is_refused(level):
    """Without an error a table would vanish, and the manifest could not be read again."""
    version = tree("L6: 1[a-b]")
    (f,) = version.levels[6]
    with pytest.raises(ValueError, match=f"L{level}"):
        VersionEdit(moved=((1, level),)).apply(version)
    with pytest.raises(ValueError, match=f"L{level}"):
        VersionEdit(added=((level, replace(f, number=2)),)).apply(version)
