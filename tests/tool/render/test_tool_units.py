"""Formatting and parsing of units."""

import pytest

from lsmkv_tool.render import units


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("64M", 64 << 20), ("1.5 KiB", 1536), ("1_000", 1000), ("2GB", 2 * 10**9)]
)
def test_parse_size(text, value):
    assert units.parse_size(text) == value


@pytest.mark.parametrize("text", ["", "x", "12 parsecs"])
def test_parse_size_rejects_malformed_text(text):
    with pytest.raises(ValueError):
        units.parse_size(text)


def test_formats_and_parsers():
    assert [units.size(n) for n in (0, 1023, 1024, 1 << 20, 300 << 30)] == [
        "0 B", "1023 B", "1.0 KiB", "1.0 MiB", "300 GiB",
    ]  # fmt: skip
    assert units.duration(1500) == "1.5 us" and units.duration(999) == "999 ns"
    assert [units.percent(x) for x in (0.0096, None, 1e-6)] == ["0.96 %", "-", "<0.01 %"]
    assert (units.parse_count("50M"), units.parse_duration("80us")) == (50_000_000, 80_000)
