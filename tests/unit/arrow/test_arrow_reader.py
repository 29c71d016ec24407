"""Columns of byte strings from Arrow capsules, numpy arrays and pairs of buffers."""

import array
import gc
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.arrow.reader import column_list

from .capsules import Array, Made, ManyArrays, OneArray

numpy = pytest.importorskip("numpy")

ROWS = [b"ant", b"", b"a key of more than twelve bytes", b"bee\0", b"twelve bytes"]


def offsets(rows, code="i", start=0):
    ends = [start]
    for row in rows:
        ends.append(ends[-1] + len(row or b""))
    return struct.pack(f"{len(ends)}{code}", *ends)


def bits(rows):
    packed = bytearray(len(rows) // 8 + 1)
    for i, row in enumerate(rows):
        packed[i // 8] |= (row is not None) << (i % 8)
    return bytes(packed)


def views(rows, blob=b""):
    """16 bytes per row, and the buffer that the long ones are in."""
    out = b""
    for row in rows:
        if len(row or b"") <= 12:
            out += struct.pack("<i12s", len(row or b""), row or b"")
        else:
            out += struct.pack("<i4sii", len(row), row[:4], 0, len(blob))
            blob += row
    return out, blob


def everything_is_released(made):
    gc.collect()
    assert made.released == made.made


def columns_of(rows, made):
    """The same rows in every layout."""
    data = b"".join(row or b"" for row in rows)
    valid, nulls = bits(rows), sum(row is None for row in rows)
    packed, blob = views(rows)
    sizes = struct.pack("q", len(blob))
    for format, buffers in (
        (b"z", [valid, offsets(rows), data]),
        (b"u", [valid, offsets(rows), data]),
        (b"Z", [valid, offsets(rows, "q"), data]),
        (b"U", [valid, offsets(rows, "q"), data]),
        (b"vz", [valid, packed, blob, sizes]),
        (b"vu", [valid, packed, blob, sizes]),
    ):
        yield format, made.schema(format), made.array(len(rows), buffers, null_count=nulls)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=40))
def test_every_layout_gives_the_rows(rows):
    made = Made()
    for _, schema, one in columns_of(rows, made):
        assert column_list(OneArray(made, schema, one), nulls=True) == rows
    everything_is_released(made)


@given(st.lists(st.binary(max_size=20), max_size=30), st.data())
def test_an_array_may_begin_in_the_middle_of_its_buffers(rows, data):
    first = data.draw(st.integers(0, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    made = Made()
    for _, schema, one in columns_of(rows, made):
        one.offset, one.length, one.null_count = first, last - first, -1
        assert column_list(OneArray(made, schema, one)) == rows[first:last]


def test_fixed_width():
    made = Made()
    one = made.array(3, [None, b"aabbcc"])
    assert column_list(OneArray(made, made.schema(b"w:2"), one)) == [b"aa", b"bb", b"cc"]
    none = made.array(3, [None, None])
    assert column_list(OneArray(made, made.schema(b"w:0"), none)) == [b""] * 3
    everything_is_released(made)


def test_streams_of_several_chunks_and_of_none():
    made = Made()
    parts = [ROWS[:2], [], ROWS[2:]]
    arrays = [made.array(len(rows), [None, offsets(rows), b"".join(rows)]) for rows in parts]
    assert column_list(ManyArrays(made, made.schema(b"z"), arrays)) == ROWS
    assert column_list(ManyArrays(made, made.schema(b"z"), [])) == []
    everything_is_released(made)


def test_a_table_of_one_column_is_a_column():
    made = Made()
    child = made.array(5, [None, offsets(ROWS), b"".join(ROWS)], child=True)
    whole = made.array(3, [None], children=[child], offset=1)
    schema = made.schema(b"+s", [made.child_schema(b"z")])
    assert column_list(OneArray(made, schema, whole)) == ROWS[1:4]
    everything_is_released(made)


def wrong(made, format=b"z", length=5, buffers=None, **fields):
    buffers = buffers or [None, offsets(ROWS), b"".join(ROWS)]
    return OneArray(made, made.schema(format), made.array(length, list(buffers), **fields))


def in_table(made, format=b"z", columns=1, **fields):
    children = [made.array(5, [None, offsets(ROWS), b"".join(ROWS)], child=True) for _ in range(columns)]
    schema = made.schema(b"+s", [made.child_schema(format) for _ in range(columns)])
    return OneArray(made, schema, made.array(5, [None], children=children, **fields))


def with_dictionary(made):
    one = wrong(made)
    one.schema.dictionary = type(one.schema.dictionary)(made.child_schema(b"z"))
    return one


HOSTILE = {
    "another type": (lambda m: wrong(m, b"l"), TypeError, "Arrow format 'l'"),
    "no format": (lambda m: wrong(m, None), ValueError, "has no format"),
    "a width that is no number": (lambda m: wrong(m, b"w:-3", buffers=[None, b"aa"]), ValueError, "unknown width"),
    "a huge width": (lambda m: wrong(m, b"w:99999999999", buffers=[None, b"aa"]), ValueError, "unknown width"),
    "a dictionary": (with_dictionary, TypeError, "dictionary-encoded"),
    "a negative length": (lambda m: wrong(m, length=-1), ValueError, "-1 rows"),
    "a negative offset": (lambda m: wrong(m, offset=-1), ValueError, "from row -1"),
    "an offset near the end of numbers": (lambda m: wrong(m, offset=2**63 - 1), ValueError, "from row"),
    "a length near the end of numbers": (lambda m: wrong(m, length=2**63 - 1), ValueError, "rows from row"),
    "fixed rows beyond all memory": (
        lambda m: wrong(m, b"w:2147483647", 2**57, [None, b"aa"]),
        ValueError,
        "rows of 2147483647 bytes",
    ),
    "too few buffers": (lambda m: wrong(m, buffers=[None, offsets(ROWS)]), ValueError, "2 buffers where 3"),
    "too many buffers": (lambda m: wrong(m, buffers=[None] * 4), ValueError, "4 buffers where 3"),
    "no offsets": (lambda m: wrong(m, buffers=[None, None, b"abc"]), ValueError, "second buffer"),
    "offsets that decrease": (
        lambda m: wrong(m, length=2, buffers=[None, struct.pack("3i", 0, 3, 2), b"abc"]),
        ValueError,
        "row 1: its offsets decrease",
    ),
    "negative offsets": (
        lambda m: wrong(m, length=1, buffers=[None, struct.pack("2i", -1, 2), b"abc"]),
        ValueError,
        "row 0: its offsets",
    ),
    "offsets without data": (
        lambda m: wrong(m, length=1, buffers=[None, struct.pack("2i", 0, 2), None]),
        ValueError,
        "row 0: its offsets",
    ),
    "more nulls than rows": (lambda m: wrong(m, null_count=6), ValueError, "6 nulls"),
    "a null count below -1": (lambda m: wrong(m, null_count=-2), ValueError, "-2 nulls"),
    "nulls without a bitmap": (lambda m: wrong(m, null_count=1), ValueError, "without a validity bitmap"),
    "a null": (
        lambda m: wrong(m, buffers=[b"\x17", offsets(ROWS), b"".join(ROWS)], null_count=-1),
        ValueError,
        "row 3 is null",
    ),
    "views without sizes": (
        lambda m: wrong(m, b"vz", 1, [None, bytes(16), b"data", None]),
        ValueError,
        "without the sizes",
    ),
    "a buffer of negative size": (
        lambda m: wrong(m, b"vz", 1, [None, bytes(16), b"data", struct.pack("q", -1)]),
        ValueError,
        "-1 bytes",
    ),
    "a view of negative length": (
        lambda m: wrong(m, b"vz", 1, [None, struct.pack("<i12x", -1), struct.pack("q", 0)]),
        ValueError,
        "row 0: its view",
    ),
    "a view of no buffer": (
        lambda m: wrong(m, b"vz", 1, [None, struct.pack("<i4xii", 13, 0, 0), struct.pack("q", 0)]),
        ValueError,
        "row 0: its view",
    ),
    "a view of a buffer before the first": (
        lambda m: wrong(m, b"vz", 1, [None, struct.pack("<i4xii", 13, -1, 0), bytes(20), struct.pack("q", 20)]),
        ValueError,
        "row 0: its view",
    ),
    "a view past the end": (
        lambda m: wrong(m, b"vz", 1, [None, struct.pack("<i4xii", 13, 0, 8), bytes(20), struct.pack("q", 20)]),
        ValueError,
        "row 0: its view",
    ),
    "a view before the start": (
        lambda m: wrong(m, b"vz", 1, [None, struct.pack("<i4xii", 13, 0, -1), bytes(20), struct.pack("q", 20)]),
        ValueError,
        "row 0: its view",
    ),
    "a table of two columns": (lambda m: in_table(m, columns=2), TypeError, "2 columns where 1 is needed"),
    "a table of another type": (lambda m: in_table(m, b"l"), TypeError, "Arrow format 'l'"),
    "a table with more rows than its column": (lambda m: in_table(m, offset=1), ValueError, "6 are needed"),
    "a table of a negative length": (lambda m: in_table(m, offset=-1), ValueError, "from row -1"),
    "a table that has lost its columns": (lambda m: in_table(m, n_children=0), ValueError, "of 0 columns"),
    "a failing schema": (lambda m: ManyArrays(m, None, []), ValueError, "the Arrow stream failed"),
    "a failing stream": (
        lambda m: ManyArrays(m, m.schema(b"z"), [m.array(5, [None, offsets(ROWS), b"".join(ROWS)])], b"no luck"),
        ValueError,
        "the Arrow stream failed: no luck",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_inconsistent_is_refused_and_released_once(name):
    make, error, message = HOSTILE[name]
    made = Made()
    with pytest.raises(error, match=message):
        column_list(make(made))
    everything_is_released(made)


def test_a_structure_is_taken_once():
    made = Made()
    one = wrong(made)
    column_list(one)
    with pytest.raises(ValueError, match="released or taken already"):
        column_list(one)
    everything_is_released(made)


@pytest.mark.parametrize("names", [(b"arrow_schema", b"arrow_schema"), (b"arrow_array", b"arrow_array")])
def test_capsules_of_another_name_are_refused(names):
    made = Made()
    with pytest.raises(ValueError, match="PyCapsule"):
        column_list(OneArray(made, made.schema(b"z"), made.array(0, [None] * 3), names))


@pytest.mark.parametrize("result", [None, (), (1, 2), [1, 2], (object(), object(), object())])
def test_what_is_no_pair_of_capsules_is_refused(result):
    class Strange:
        def __arrow_c_array__(self):
            return result

    with pytest.raises((TypeError, ValueError)):
        column_list(Strange())


def test_a_released_array_in_a_capsule_is_refused():
    made = Made()
    with pytest.raises(ValueError, match="released or taken already"):
        column_list(OneArray(made, made.schema(b"z"), Array()))
    everything_is_released(made)


# --- numpy and pairs of buffers ---------------------------------------------------------------------------------------


def test_numpy_strings_drop_their_padding_as_numpy_does():
    rows = numpy.array([b"ant", b"", b"b\0c", b"\0\0"], "S5")
    assert column_list(rows) == list(rows) == [b"ant", b"", b"b\0c", b""]
    assert column_list(rows[::-2]) == [b"", b""]


def test_numpy_void_and_bytes_keep_every_byte():
    rows = numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)
    expected = [row.tobytes() for row in rows]
    assert column_list(rows) == expected
    assert column_list(rows[1:, :2]) == [b"\4\5", b"\x08\x09"]
    assert column_list(numpy.ascontiguousarray(rows).view("V4").ravel()) == expected
    assert column_list(rows[:0]) == [] and column_list(rows[:, :0]) == [b""] * 3


@pytest.mark.parametrize(
    "source",
    [b"bytes", bytearray(b"x"), memoryview(b"x"), array.array("q", [1]), numpy.arange(3), numpy.zeros((2, 2, 2), "u1")],
)
def test_other_buffers_are_refused(source):
    with pytest.raises(TypeError, match="dtype S or V"):
        column_list(source)


def test_rows_with_gaps_are_refused():
    with pytest.raises(TypeError, match="contiguous"):
        column_list(numpy.zeros((2, 8), "u1")[:, ::2])


@pytest.mark.parametrize("code", ["i", "q"])
def test_data_and_offsets(code):
    ends = array.array(code, struct.unpack(f"{len(ROWS) + 1}{code}", offsets(ROWS, code)))
    assert column_list((b"".join(ROWS), ends)) == ROWS
    assert column_list((b"", array.array(code, [0]))) == []
    for bad in ([0, 4], [-1, 3], [2, 1]):
        with pytest.raises(ValueError, match="row 0: its offsets"):
            column_list((b"abc", array.array(code, bad)))
    with pytest.raises(ValueError, match="no offsets"):
        column_list((b"abc", array.array(code)))


# --- libraries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type_name", ["binary", "large_binary", "string", "large_string", "binary_view", "string_view"]
)
def test_pyarrow(type_name):
    pyarrow = pytest.importorskip("pyarrow")
    words = ["ant", "", "a key of more than twelve bytes", None]
    kind = getattr(pyarrow, type_name)()
    rows = [word if word is None or "string" in type_name else word.encode() for word in words]
    column = pyarrow.array(rows, kind)
    expected = [word if word is None else word.encode() for word in words]
    assert column_list(column, nulls=True) == expected
    assert column_list(column[1:3]) == expected[1:3]
    chunked = pyarrow.chunked_array([column[:2], column[2:]])
    assert column_list(chunked, nulls=True) == expected
    assert column_list(pyarrow.table({"key": chunked}), nulls=True) == expected


def test_polars():
    polars = pytest.importorskip("polars")
    series = polars.Series("key", [b"ant", b"a key of more than twelve bytes"])
    assert column_list(series) == series.to_list()
    assert column_list(series.to_frame()) == series.to_list()
