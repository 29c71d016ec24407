import pytest
from png_decoder import decode_png

from lsmkv_tool.render import heat_map as heat
from lsmkv_tool.render import png, units
from lsmkv_tool.render.key_axis import KeySpace, paint


def test_png_holds_the_pixels_it_was_given():
    pixels = bytes(range(2 * 3 * 3))
    assert decode_png(png.encode(2, 3, pixels)) == (2, 3, pixels)


def test_png_refuses_pixels_that_do_not_fit():
    with pytest.raises(ValueError):
        png.encode(2, 2, b"123")


def test_a_heat_map_colours_by_fill_and_leaves_the_rest_white():
    width, height, pixels = decode_png(heat.png([0.0, 0.75, 0.4], width=2, scale=1))
    assert (width, height) == (2, 2)
    assert pixels == b"".join(bytes(heat.colour(fill)) for fill in (0, 0.75, 0.4)) + b"\xff\xff\xff"


def test_cells_average_every_block_once():
    fills = [i / 1000 for i in range(1000)]
    cells = heat.cells(fills, 7)
    assert len(cells) == 7
    sizes = [(i + 1) * 1000 // 7 - i * 1000 // 7 for i in range(7)]
    assert sum(c * n for c, n in zip(cells, sizes, strict=True)) == pytest.approx(sum(fills))


def test_plain_heat_map_gets_darker_with_fill():
    (line,) = heat.plain([0.0, 0.2, 0.4, 0.6, 0.9], width=5)
    assert [heat.SHADES.index(c) for c in line] == sorted(heat.SHADES.index(c) for c in line)
    assert line[0] == heat.SHADES[0] and line[-1] == heat.SHADES[-1]


def test_keys_spread_in_order_over_the_picture():
    space = KeySpace([b"user:00000", b"user:99999"])
    places = [space(b"user:%05d" % i) for i in range(0, 100000, 5000)]
    assert places == sorted(places) and places[0] == 0.0
    assert places[10] == pytest.approx(0.5, abs=0.03)


def test_keys_of_a_database_with_one_key():
    assert KeySpace([b"a"])(b"a") == 0.0
    assert KeySpace([])(b"a") == 0.0


def test_overlapping_spans_show_how_many():
    assert paint([(0.0, 0.5), (0.5, 1.0)], 8) == "####===="
    assert paint([(0.0, 1.0), (0.0, 0.5)], 4) in ("22##", "22==")


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("64M", 64 << 20), ("1.5 KiB", 1536), ("1_000", 1000), ("2GB", 2 * 10**9)]
)
def test_sizes_are_read(text, value):
    assert units.parse_size(text) == value


@pytest.mark.parametrize("text", ["", "x", "12 parsecs"])
def test_wrong_sizes_are_refused(text):
    with pytest.raises(ValueError):
        units.parse_size(text)


def test_numbers_for_people():
    assert [units.size(n) for n in (0, 1023, 1024, 1 << 20, 300 << 30)] == [
        "0 B", "1023 B", "1.0 KiB", "1.0 MiB", "300 GiB",
    ]  # fmt: skip
    assert units.duration(1500) == "1.5 us" and units.duration(999) == "999 ns"
    assert [units.percent(x) for x in (0.0096, None, 1e-6)] == ["0.96 %", "-", "1.0e-04 %"]
    assert (units.parse_count("50M"), units.parse_duration("80us")) == (50_000_000, 80_000)
