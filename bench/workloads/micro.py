"""Micro-workloads: the filter, the hash and the compressor by themselves, one call per operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..native.workload import Stream, Values, make_keys
from ..session import Outcome, Session
from ..settings import Settings
from .loop import Until
from .registry import outcome_of
from .verify import WrongAnswer


def _blocks(cfg: Settings) -> list[bytes]:
    """Blocks of records as a table would hold them."""
    values = Values(cfg.seed, ("fixed", cfg.block_size), cfg.compression_ratio)
    return values.make(Stream("sequential", 256, 0).take(256), 1)


def _drive(
    session: Session, cfg: Settings, fn: Callable[[Any], Any], args: list[Any], ops: int, size: int
) -> Outcome:
    driver = session.driver(replace(cfg, check_every=0))
    until = Until(cfg, ops)
    while not until.over(driver.ops):
        driver.each(fn, args)
        session.tick(driver.ops, until.total, driver.ns / 1e9)
    return outcome_of(driver, session, driver.ops, moved=driver.ops * size)


def bloom_add(session: Session, cfg: Settings) -> Outcome:
    assert session.engine is not None
    add, _ = session.engine.bloom(cfg.num)
    keys = make_keys(Stream("unique", cfg.num, cfg.seed).take(cfg.num), cfg.key_size)
    return _drive(session, cfg, add, keys, cfg.num, 0)


def bloom_probe(session: Session, cfg: Settings) -> Outcome:
    """Absent keys: the case a filter is there for. Also measures its false positive rate."""
    assert session.engine is not None
    add, test = session.engine.bloom(cfg.num)
    keys = make_keys(Stream("sequential", cfg.num, 0).take(cfg.num), cfg.key_size)
    for key in keys:
        add(key)
    lost = sum(not test(key) for key in keys[::101])
    if lost:
        raise WrongAnswer(f"the filter forgot {lost} of {len(keys[::101])} keys")
    absent = make_keys(
        Stream("unique", cfg.num, cfg.seed).take(min(cfg.num, cfg.reads or cfg.num)), cfg.key_size, b"."
    )
    outcome = _drive(session, cfg, test, absent, len(absent), 0)
    outcome.detail["false_positive_rate"] = sum(map(bool, map(test, absent))) / len(absent)
    return outcome


def xxh3(session: Session, cfg: Settings) -> Outcome:
    import xxhash

    return _drive(session, cfg, xxhash.xxh3_64_intdigest, _blocks(cfg), cfg.reads or 100_000, cfg.block_size)


def lz4_compress(session: Session, cfg: Settings) -> Outcome:
    import lz4.block

    return _drive(session, cfg, lz4.block.compress, _blocks(cfg), cfg.reads or 100_000, cfg.block_size)


def lz4_decompress(session: Session, cfg: Settings) -> Outcome:
    import lz4.block

    blocks = _blocks(cfg)
    packed = [lz4.block.compress(block) for block in blocks]
    if [lz4.block.decompress(p) for p in packed] != blocks:
        raise WrongAnswer("lz4 did not return what it was given")
    return _drive(session, cfg, lz4.block.decompress, packed, cfg.reads or 100_000, cfg.block_size)


KERNELS: dict[str, Callable[[Session, Settings], Outcome]] = {
    "bloomadd": bloom_add,
    "bloomprobe": bloom_probe,
    "xxh3": xxh3,
    "lz4comp": lz4_compress,
    "lz4decomp": lz4_decompress,
}
