"""Settings, and the text of sizes and counts."""

from __future__ import annotations

import pytest

import lsmkv
from lsmkv_bench.cli import build_parser, to_settings
from lsmkv_bench.settings import Settings
from lsmkv_bench.units import format_size, parse_bool, parse_count, parse_size


def test_sizes_and_counts() -> None:
    sizes = {"4096": 4096, "64k": 65536, "64MB": 64 << 20, "1GiB": 1 << 30, "1.5m": 3 << 19}
    assert {text: parse_size(text) for text in sizes} == sizes
    assert [parse_count(t) for t in ("1_000", "1e6", "10k", "2M")] == [1000, 10**6, 10**4, 2 * 10**6]
    assert [parse_bool(t) for t in ("1", "true", "0", "no")] == [True, True, False, False]
    for parse in (parse_size, parse_count, parse_bool):
        with pytest.raises(ValueError):
            parse("much")
    assert [format_size(n) for n in (None, 5, 1536, 3 << 19, 5 << 30)] == ["-", "5 B", "1.5 KiB", "1.5 MiB", "5.0 GiB"]


def test_round_trip() -> None:
    settings = Settings(engines=("dict",), engine_options={"lsmkv": {"wal": None}})
    assert Settings.from_dict(settings.to_dict()) == settings


def test_peers_get_the_sizes_into_which_lsmkv_splits_its_memory() -> None:
    settings = Settings(memory=64 << 20).resolved()
    split = lsmkv.Options(memory=64 << 20)
    assert (settings.write_buffer_size, settings.cache_size) == (split.write_buffer_size, split.block_cache_size)
    assert settings.resolved() == settings
    with pytest.raises(ValueError, match="exclude each other"):
        Settings(memory=64 << 20, memory_budget=1 << 30).resolved()


def test_flags_of_a_single_benchmark() -> None:
    changed = Settings().with_flags({"threads": "8", "sync": "1", "cache-size": "8MB", "bloom_bits": "auto"})
    assert (changed.threads, changed.sync, changed.cache_size, changed.bits_per_key) == (8, True, 8 << 20, "auto")
    for name in ("engines", "num", "nonsense"):
        with pytest.raises(ValueError, match="cannot be set"):
            Settings().with_flags({name: "1"})


@pytest.mark.parametrize("text", ["64m", "64k", "8MB", "1g", "100", "1k"])
def test_a_flag_of_a_single_benchmark_reads_as_it_does_for_all(text: str) -> None:
    for name in ("write-buffer-size", "value-size", "reads"):
        if name == "reads" and text in ("8MB", "1g"):
            continue
        whole_run = to_settings(build_parser().parse_args([f"--{name}={text}"]))
        assert Settings().with_flags({name: text}) == whole_run


def test_memory_budget_is_split() -> None:
    settings = Settings(memory_budget=256 << 20, write_buffer_size=64 << 20).resolved()
    assert settings.cache_size == 128 << 20
    with pytest.raises(ValueError, match="leaves no block cache"):
        Settings(memory_budget=64 << 20).resolved()


def test_peers_get_ten_bits_for_automatic_filters() -> None:
    assert Settings(bits_per_key="auto").peer_bits_per_key == 10
    assert Settings(bits_per_key=7.5).peer_bits_per_key == 7.5
