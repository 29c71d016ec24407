"""The settings that each engine reports."""

from __future__ import annotations

from pathlib import Path

import pytest

import lsmkv
from lsmkv_bench.engines import engine_class
from lsmkv_bench.settings import Settings


@pytest.mark.parametrize("name", ["rocksdb", "leveldb"])
def test_peers_report_the_size_of_automatic_filters(name: str) -> None:
    mapping = engine_class(name)("", Settings(bits_per_key="auto")).mapping()
    assert "auto" not in mapping["filter"] and "10" in mapping["filter"]


@pytest.mark.parametrize(
    ("hits", "words"), [(False, "bits/key"), (True, "none at the bottom"), ("auto", "by the misses at the bottom")]
)
def test_mapping_reports_levels_without_filters(hits: bool | str, words: str) -> None:
    engine = engine_class("lsmkv")("", Settings(optimize_filters_for_hits=hits))
    assert engine.mapping()["filter"].endswith(words)


def test_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="known: lsmkv"):
        engine_class("oracle")


def test_lsmkv_runs_in_a_named_keyspace(tmp_path: Path) -> None:
    engine = engine_class("lsmkv")(str(tmp_path / "db"), Settings(keyspace="named"))
    engine.open()
    engine.put(b"k", b"v")
    assert list(engine.items()) == [(b"k", b"v")] and engine.mapping()["keyspace"] == "named"
    engine.close()
    with lsmkv.open(tmp_path / "db") as db:
        assert dict(db) == {} and dict(db.keyspace("named")) == {b"k": b"v"}
