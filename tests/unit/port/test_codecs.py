"""XXH3 and LZ4 through the packages' C functions and through their Python API: the same bytes either way."""

import os
import subprocess
import sys

import lz4.block
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.port import codecs

PATHS = ("c", "python")
seeds = st.integers(0, 2**64 - 1)


@pytest.fixture(autouse=True)
def c_path_again():
    yield
    codecs.use("c")


@given(st.binary(max_size=600), seeds)
def test_hash_is_xxh3_with_seed_on_both_paths(data, seed):
    expected = xxhash.xxh3_64_intdigest(data, seed)
    for path in PATHS:
        codecs.use(path)
        assert codecs.hash64(data, seed) == expected


@given(st.binary(max_size=600), st.binary(max_size=600), seeds)
def test_hash_of_two_pieces_is_the_hash_of_both_together(first, second, seed):
    expected = xxhash.xxh3_64_intdigest(first + second, seed)
    for path in PATHS:
        codecs.use(path)
        assert codecs.hash64_pair(first, second, seed) == expected


@given(st.binary(max_size=3000).map(lambda b: b * 3))
def test_blocks_written_by_one_path_are_read_by_the_other(data):
    for writer in PATHS:
        codecs.use(writer)
        packed = codecs.compress(data)
        assert lz4.block.decompress(packed, uncompressed_size=max(len(data), 1)) == data
        for reader in PATHS:
            codecs.use(reader)
            assert codecs.decompress(packed, len(data)) == data
            assert codecs.decompress(packed, len(data) + 100) == data


@pytest.mark.parametrize("path", PATHS)
def test_damaged_or_too_large_blocks_are_refused(path):
    codecs.use(path)
    packed = codecs.compress(bytes(range(256)) * 20)
    for capacity in (0, 1, 256 * 20 - 1):
        with pytest.raises(ValueError, match="LZ4"):
            codecs.decompress(packed, capacity)
    with pytest.raises(ValueError, match="LZ4"):
        codecs.decompress(packed[:-1], 256 * 20)
    with pytest.raises(ValueError, match="LZ4"):
        codecs.decompress(b"", 10)


def test_describe_names_the_path_of_each_function():
    codecs.use("python")
    described = codecs.describe()
    assert {described[name] for name in ("xxh3", "lz4_compress", "lz4_decompress")} == {"python"}
    assert described["xxhash_version"] == xxhash.VERSION
    codecs.use("c")
    assert {codecs.describe()[name] for name in ("xxh3", "lz4_compress", "lz4_decompress")} <= {"c", "python"}


def test_unknown_path_is_refused():
    with pytest.raises(ValueError, match="'c' or 'python'"):
        codecs.use("fortran")


def test_environment_forces_the_fallback():
    shown = subprocess.run(
        [sys.executable, "-c", "from lsmkv_ext.port import codecs; print(codecs.describe()['xxh3'])"],
        env={**os.environ, "LSMKV_CODECS": "python"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "python"
