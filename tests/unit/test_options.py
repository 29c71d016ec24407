import ast
import copy
import dataclasses
import pickle
import re
from pathlib import Path

import pytest

from lsmkv.errors import CorruptionError, OptionError
from lsmkv.option_types import KeyspaceOptions, LiveOptions, OpenOptions
from lsmkv.options import _CHECKS, LIVE, OF_KEYSPACE, Options


def test_every_field_has_a_check_and_every_live_option_exists():
    names = {field.name for field in dataclasses.fields(Options)}
    assert names == set(_CHECKS)
    assert names >= LIVE


@pytest.mark.parametrize(
    ("keywords", "names"),
    [
        (KeyspaceOptions, OF_KEYSPACE),
        (LiveOptions, LIVE),
        (OpenOptions, {field.name for field in dataclasses.fields(Options)}),
    ],
)
def test_type_checkers_know_the_same_options(keywords, names):
    assert keywords.__optional_keys__ == names
    assert not keywords.__required_keys__


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(OptionError, match="'write_buffer_size'"):
        Options.of(None, {"writebuffer_size": 1})
    with pytest.raises(OptionError, match="'bits_per_key'"):
        Options().replace_live(bits_perkey=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write_buffer_size", 0),
        ("write_buffer_size", True),
        ("write_buffer_size", 65536.0),
        ("max_write_buffers", 1),
        ("block_size", 10),
        ("compression", "snappy"),
        ("compression", []),
        ("compression", ["lz4"] * 8),
        ("bits_per_key", -1),
        ("bits_per_key", "automatic"),
        ("bits_per_key", float("nan")),
        ("bits_per_key", [10, "x"]),
        ("target_fpr", 0),
        ("optimize_filters_for_hits", 1),
        ("prefix_extractor", b""),
        ("prefix_extractor", b"::"),
        ("prefix_extractor", 0),
        ("prefix_extractor", []),
        ("prefix_extractor", [1, 2, 3, 4, 5]),
        ("prefix_extractor", [4, 4]),
        ("prefix_extractor", [4, 256]),
        ("prefix_extractor", [0, 4]),
        ("prefix_extractor", [4, b"/"]),
        ("prefix_extractor", [4, True]),
        ("level_size_ratio", 1),
        ("wal", "disk"),
        ("recovery", "loose"),
        ("sync", 1),
        ("max_open_files", 3),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(OptionError, match=name):
        Options(**{name: value})


def test_triggers_must_be_ordered():
    with pytest.raises(OptionError, match="l0_slowdown_trigger"):
        Options(l0_compaction_trigger=5, l0_slowdown_trigger=4)


def test_a_misspelt_option_names_the_right_one_wherever_it_is_given():
    for make in (
        lambda: Options(blocksize=4096),
        lambda: Options().replace(blocksize=4096),
        lambda: Options().replace_live(blocksize=4096),
        lambda: Options.of({"blocksize": 4096}, {}),
        lambda: Options.of(None, {"blocksize": 4096}),
    ):
        with pytest.raises(OptionError, match="did you mean 'block_size'"):
            make()
    assert pickle.loads(pickle.dumps(Options(sync=True))) == copy.copy(Options(sync=True)) == Options(sync=True)


def test_option_error_is_a_value_error():
    assert issubclass(OptionError, ValueError)


def test_lists_per_level_continue_with_their_last_entry():
    options = Options(compression=[None, None, "lz4"], bits_per_key=[20, 10])
    assert [options.compression_at(level) for level in range(5)] == [0, 0, 1, 1, 1]
    assert options.bits_per_key == (20.0, 10.0)


def test_prefix_as_the_data_plane_takes_it():
    assert Options().prefix == (0, 0)
    assert Options(prefix_extractor=4).prefix == (1, 4)
    assert Options(prefix_extractor=b":").prefix == (2, ord(":"))
    assert Options(prefix_extractor=[8, 4]).prefix == (3, 0x0804)
    assert Options(prefix_extractor=(1, 2, 3, 255)).prefix == (3, 0xFF030201)
    assert Options(prefix_extractor=[8]) == Options(prefix_extractor=8)


def test_only_live_options_change_on_an_open_database():
    assert Options().replace_live(bits_per_key=12).bits_per_key == 12.0
    with pytest.raises(OptionError, match="wal cannot be changed"):
        Options().replace_live(wal=None)


def test_of_takes_options_mappings_and_keywords():
    assert Options.of({"block_size": 8192}, {"sync": True}) == Options(block_size=8192, sync=True)
    assert Options.of(Options(sync=True), {}).sync
    with pytest.raises(OptionError):
        Options.of(42, {})


def test_the_file_gives_back_the_same_options():
    options = Options(prefix_extractor=b"/", compression=(None, "lz4"), bits_per_key="auto", filter_memory=1 << 20)
    assert Options.decode(options.encode()) == options


def test_every_flipped_byte_of_the_file_is_noticed():
    data = Options().encode()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptionError):
            Options.decode(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            Options.decode(data[:size])


PAGE = (Path(__file__).parents[2] / "docs" / "options.md").read_text()
ROWS = {
    name: rest for name, *rest in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| (yes|no) \| .{20,}\|$", PAGE, re.M)
}
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}


def quantity(text):
    """The number that a page writes as `4 KiB`, `1,000` or `0.5`."""
    number, _, unit = text.strip("`").partition(" ")
    return ast.literal_eval(number.replace(",", "")) * UNITS[unit]


def accepted(name, value):
    try:
        _CHECKS[name](name, value)
    except OptionError:
        return False
    return True


def test_the_page_of_options_lists_each_one_with_its_default():
    assert ROWS.keys() == {field.name for field in dataclasses.fields(Options)}
    for field in dataclasses.fields(Options):
        default, _, live = ROWS[field.name]
        assert (quantity(default) if default[0].isdigit() else ast.literal_eval(default.strip("`"))) == field.default
        assert live == ("yes" if field.name in LIVE else "no")


@pytest.mark.parametrize("name", ROWS)
def test_the_page_of_options_has_the_range_of_each_one(name):
    listed = ROWS[name][1]
    values = [ast.literal_eval(word) for word in re.findall(r"True|False|None|\"\w+\"", listed)]
    for value in (None, True, False, "nonsense", *values):
        assert accepted(name, value) == ((type(value), value) in [(type(known), known) for known in values])
    span = re.search(r"([\d.,]+(?: .iB)?) to ([\d.,]+(?: .iB)?)", listed)
    assert span or values
    if span:
        low, high = map(quantity, span.groups())
        assert accepted(name, low) and accepted(name, high)
        assert not accepted(name, low - 1e-9 if isinstance(low, float) else low - 1)
        assert not accepted(name, high + 1)
    assert accepted(name, ["lz4" if name == "compression" else "bloom" if name == "filter" else 4]) == (
        "a list" in listed
    )
