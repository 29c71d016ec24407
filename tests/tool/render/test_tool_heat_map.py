"""Heat maps: cells, colours, pictures."""

import pytest
from png_decoder import decode_png

from lsmkv_tool.render import heat_map


def test_a_heat_map_colours_by_fill():
    fills = [0.0, 0.75, 0.4, 0.2]
    assert decode_png(heat_map.png(fills)) == (2, 2, b"".join(bytes(heat_map.colour(fill)) for fill in fills))
    width, height, pixels = decode_png(heat_map.png(fills, 8))
    assert (width, height) == (8, 8)
    assert pixels[:24] == bytes(heat_map.colour(0.0)) * 4 + bytes(heat_map.colour(0.75)) * 4


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 64, 1000, 1009, 65536, 1_000_003])
def test_a_picture_has_a_useful_size(blocks):
    width, height = heat_map.grid(blocks)
    assert width * height >= 0.8 * min(blocks, heat_map.MAX_CELLS) and height <= width <= 4 * height
    wide, high, _ = decode_png(heat_map.png([0.4] * width * height, 1200))
    assert 1000 <= wide <= 1400 and 250 <= high <= 1400


def test_cells_average_every_block_once():
    fills = [i / 1000 for i in range(1000)]
    cells = heat_map.cells(fills, 7)
    assert len(cells) == 7
    sizes = [(i + 1) * 1000 // 7 - i * 1000 // 7 for i in range(7)]
    assert sum(c * n for c, n in zip(cells, sizes, strict=True)) == pytest.approx(sum(fills))


def test_plain_heat_map_gets_darker_with_fill():
    (line,) = heat_map.plain([0.0, 0.2, 0.4, 0.6, 0.9], width=5)
    assert [heat_map.SHADES.index(c) for c in line] == sorted(heat_map.SHADES.index(c) for c in line)
    assert line[0] == heat_map.SHADES[0] and line[-1] == heat_map.SHADES[-1]
