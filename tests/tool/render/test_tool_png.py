"""The PNG encoder, read back by an independent decoder."""

import pytest
from png_decoder import decode_png

from lsmkv_tool.render import png


def test_png_round_trip():
    pixels = bytes(range(2 * 3 * 3))
    assert decode_png(png.encode(2, 3, pixels)) == (2, 3, pixels)


def test_png_rejects_a_wrong_pixel_count():
    with pytest.raises(ValueError):
        png.encode(2, 2, b"123")
