import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treetext import parse_file, show, tree

from lsmkv.errors import CorruptionError
from lsmkv.options import MAX_LEVELS
from lsmkv.version.edit import MAX_CLOCK, MAX_KEYSPACE, MAX_REASON, TreeEdit, VersionEdit, decode_edit
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


CHANGES = {
    "shift": st.sampled_from([-1, 0, 1]),
    "removed": st.lists(NUMBERS, max_size=4).map(tuple),
    "moved": st.lists(st.tuples(NUMBERS, LEVELS), max_size=4).map(tuple),
    "added": st.lists(st.tuples(LEVELS, files()), max_size=4).map(tuple),
}
NUMBERS_OF_THE_DATABASE = {
    "seed": st.none() | U64,
    "next_file": st.none() | NUMBERS,
    "last_seq": st.none() | U64,
    "log_number": st.none() | NUMBERS,
    "logged": st.none() | st.booleans(),
    "time_us": U64,
    "reason": st.text(st.characters(codec="ascii"), max_size=MAX_REASON),
}
DEFAULT_TREE = st.builds(TreeEdit, **CHANGES).map(lambda tree: (tree,) if tree.changes else ())
KEYSPACES = st.integers(1, MAX_KEYSPACE)
NAMED_TREES = st.builds(
    TreeEdit,
    keyspace=KEYSPACES,
    name=st.none() | st.text(st.characters(codec="ascii"), min_size=1, max_size=255),
    options=st.none() | st.dictionaries(st.text(max_size=9), st.none() | st.integers() | st.text(max_size=9)),
    **CHANGES,
) | st.builds(TreeEdit, keyspace=KEYSPACES, dropped=st.just(True))

EDITS = st.builds(VersionEdit, trees=DEFAULT_TREE, **NUMBERS_OF_THE_DATABASE)
EDITS_2 = st.builds(
    VersionEdit,
    next_keyspace=st.none() | st.integers(1, MAX_KEYSPACE + 1),
    clock=st.none() | st.integers(0, MAX_CLOCK),
    trees=st.tuples(DEFAULT_TREE, st.lists(NAMED_TREES, max_size=3, unique_by=lambda tree: tree.keyspace)).map(
        lambda found: (*found[0], *sorted(found[1], key=lambda tree: tree.keyspace))
    ),
    **NUMBERS_OF_THE_DATABASE,
)
# With the format that it is of.
ANY_EDIT = EDITS.map(lambda edit: (edit, 1)) | EDITS_2.map(lambda edit: (edit, 2))


@given(ANY_EDIT)
def test_what_is_encoded_comes_back(of_format):
    edit, format_version = of_format
    assert decode_edit(edit.encode(), format_version=format_version) == edit


@given(EDITS)
def test_an_edit_of_format_1_is_one_of_format_2(edit):
    assert decode_edit(edit.encode(), format_version=2) == edit


@pytest.mark.parametrize("tag", [10, 11, 12, 13, 14, 15])
def test_format_1_knows_no_tag_of_format_2(tag):
    with pytest.raises(CorruptionError, match=f"unknown tag {tag}"):
        decode_edit(bytes([tag, 0]), format_version=1)


@given(ANY_EDIT, st.data())
def test_a_cut_edit_is_refused_or_a_shorter_one_never_a_crash(of_format, data):
    edit, format_version = of_format
    encoded = edit.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    with contextlib.suppress(CorruptionError):
        decode_edit(cut, format_version=format_version)


@given(st.binary(max_size=200), st.sampled_from([1, 2]))
def test_any_bytes_decode_or_are_refused(data, format_version):
    with contextlib.suppress(CorruptionError):
        decode_edit(data, format_version=format_version)


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
    edit = TreeEdit(removed=(5, 1), moved=((4, 1),), added=((1, parse_file("6[a-c]")),))
    assert show(edit.apply(version)) == "L1: 6 4"


def test_apply_shifts_first():
    edit = TreeEdit(shift=1, added=((1, parse_file("6[a-c]")),))
    assert show(edit.apply(tree("L1: 1[a-z]"))) == "L1: 6 | L2: 1"


@pytest.mark.parametrize("edit", [TreeEdit(removed=(9,)), TreeEdit(moved=((9, 2),)), TreeEdit(shift=-1)])
def test_an_edit_that_does_not_fit_is_refused(edit):
    with pytest.raises(ValueError):
        edit.apply(tree("L1: 1[a-z]"))


def test_an_edit_that_changes_no_file_keeps_the_version_itself():
    version = tree("L1: 1[a-z]")
    assert TreeEdit().apply(version) is version
    assert TreeEdit().apply(Version()) == Version()


@pytest.mark.parametrize("level", [-1, MAX_LEVELS])
def test_an_edit_to_a_level_that_does_not_exist_is_refused(level):
    """Without an error a table would vanish, and the manifest could not be read again."""
    version = tree("L6: 1[a-b]")
    (f,) = version.levels[6]
    with pytest.raises(ValueError, match=f"L{level}"):
        TreeEdit(moved=((1, level),)).apply(version)
    with pytest.raises(ValueError, match=f"L{level}"):
        TreeEdit(added=((level, replace(f, number=2)),)).apply(version)
