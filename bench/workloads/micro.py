"""Micro-benchmarks: a Bloom filter, the hash and the compressor on their own, one call per operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..native.workload import KeyGenerator, ValueGenerator, make_keys
from ..session import Session
from ..settings import Settings
from .loop import Duration, outcome_of
from .outcome import Outcome
from .verify import WrongAnswer


def _blocks(cfg: Settings) -> list[bytes]:
    """256 blocks that compress like values."""
    values = ValueGenerator(cfg.seed, ("fixed", cfg.block_size), cfg.compression_ratio)
    return values.values(KeyGenerator("sequential", 256, 0).take(256), 1)


def _run(session: Session, cfg: Settings, fn: Callable[[Any], Any], args: list[Any], ops: int, size: int) -> Outcome:
    driver = session.driver(replace(cfg, check_every=0))
    duration = Duration(cfg, ops)
    while not duration.done(driver.ops):
        driver.each(fn, args)
        session.tick(driver.ops, duration.total, driver.ns / 1e9)
    return outcome_of(driver, session, driver.ops, moved=driver.ops * size)


def bloom_add(session: Session, cfg: Settings) -> Outcome:
    add, _ = session.engine.bloom(cfg.num)
    keys = make_keys(KeyGenerator("unique", cfg.num, cfg.seed).take(cfg.num), cfg.key_size)
    return _run(session, cfg, add, keys, cfg.num, 0)


def bloom_probe(session: Session, cfg: Settings) -> Outcome:
    """Probe with absent keys, and measure the false positive rate."""
    add, test = session.engine.bloom(cfg.num)
    keys = make_keys(KeyGenerator("sequential", cfg.num, 0).take(cfg.num), cfg.key_size)
    for key in keys:
        add(key)
    lost = sum(not test(key) for key in keys[::101])
    if lost:
        raise WrongAnswer(f"the filter lost {lost} of {len(keys[::101])} keys")
    numbers = KeyGenerator("unique", cfg.num, cfg.seed).take(min(cfg.num, cfg.reads or cfg.num))
    absent = make_keys(numbers, cfg.key_size, b".")
    outcome = _run(session, cfg, test, absent, len(absent), 0)
    outcome.detail["false_positive_rate"] = sum(map(bool, map(test, absent))) / len(absent)
    return outcome


def xxh3(session: Session, cfg: Settings) -> Outcome:
    import xxhash

    return _run(session, cfg, xxhash.xxh3_64_intdigest, _blocks(cfg), cfg.reads or 100_000, cfg.block_size)


def lz4_compress(session: Session, cfg: Settings) -> Outcome:
    import lz4.block

    return _run(session, cfg, lz4.block.compress, _blocks(cfg), cfg.reads or 100_000, cfg.block_size)


def lz4_decompress(session: Session, cfg: Settings) -> Outcome:
    import lz4.block

    blocks = _blocks(cfg)
    compressed = [lz4.block.compress(block) for block in blocks]
    if [lz4.block.decompress(data) for data in compressed] != blocks:
        raise WrongAnswer("lz4 did not return its input")
    return _run(session, cfg, lz4.block.decompress, compressed, cfg.reads or 100_000, cfg.block_size)
