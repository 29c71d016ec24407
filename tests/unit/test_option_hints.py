"""Advice on options that other stores have."""

from __future__ import annotations

import dataclasses

import pytest

import lsmkv
from lsmkv import option_hints
from lsmkv.option_hints import hint

OPTIONS = {field.name for field in dataclasses.fields(lsmkv.Options)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("create_if_missing", "flag='w'"),
        ("error_if_exists", "flag='n'"),
        ("readonly", "flag='r'"),
        ("bloom_filter_bits", "use 'bits_per_key'"),
        ("lru_cache_size", "use 'block_cache_size'"),
        ("paranoid_checks", "every read verifies checksums"),
        ("comparator", "ordered by their bytes"),
        ("map_size", "grows with its data"),
        ("max_dbs", r"db\.keyspace"),
        ("blocksize", "did you mean 'block_size'"),
    ],
)
def test_a_hint_names_what_lsmkv_has(name, words):
    with pytest.raises(lsmkv.OptionError, match=f"unknown option '{name}'; .*{words}"):
        lsmkv.Options(**{name: 1})


@pytest.mark.parametrize("name", ["flux_capacity", "x", "compare", "sizelimit", "max_files"])
def test_no_hint_rather_than_a_wrong_one(name):
    assert hint(name, OPTIONS) == ""


def test_hints_name_options_that_exist_and_options_that_do_not():
    assert set(option_hints._INSTEAD.values()) <= OPTIONS
    assert not OPTIONS & (option_hints._INSTEAD.keys() | option_hints._ADVICE.keys())
