"""Chunks of operations, generated outside the measured time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from ..native.workload import OPS, ExpectedState, KeyGenerator, OperationMix, ValueGenerator, make_keys
from ..settings import Settings
from .records import PIECE, json_pool

CHUNK = 16384  # fits into the CPU cache, and is long enough to amortize its setup
CHUNK_BYTES = 16 << 20
LARGEST_PARETO = 1 << 20
GET, PUT, DELETE, SCAN, UPDATE = (OPS[name] for name in ("get", "put", "delete", "scan", "update"))


@dataclass
class Chunk:
    codes: bytes | bytearray
    numbers: array[int]
    keys: list[bytes]
    values: list[bytes] | None
    lengths: array[int] | None
    expected: bytes | bytearray  # the generation that each operation finds, 0 for an absent key
    generation: int

    def first(self, count: int) -> Chunk:
        """The first `count` operations."""
        if count >= len(self.keys):
            return self
        return Chunk(
            self.codes[:count],
            self.numbers[:count],
            self.keys[:count],
            self.values[:count] if self.values is not None else None,
            self.lengths[:count] if self.lengths is not None else None,
            self.expected[:count],
            self.generation,
        )

    @property
    def user_bytes(self) -> int:
        """Bytes of the keys and values that the chunk writes."""
        if self.values is None:
            return 0
        writes = (PUT, UPDATE)
        pairs = zip(self.codes, self.keys, self.values, strict=True)
        return sum(len(k) + len(v) for code, k, v in pairs if code in writes)


def key_generator(distribution: str, num: int, seed: int) -> KeyGenerator:
    """`distribution` is `uniform`, `zipf:0.99`, `latest`, `latest:0.8`, `sequential` or `unique`."""
    kind, _, theta = distribution.partition(":")
    if kind in ("zipfian", "zipf"):
        return KeyGenerator("zipf", num, seed, theta=float(theta or 0.99))
    if kind == "latest":
        return KeyGenerator("latest", num, seed, theta=float(theta or 0.99))
    if kind not in ("uniform", "sequential", "unique"):
        raise ValueError(f"distribution must be uniform, zipf:<theta> or latest, not {distribution!r}")
    return KeyGenerator(kind, num, seed)


def value_sizes(cfg: Settings) -> tuple[object, ...]:
    """The sizes for a ValueGenerator."""
    kind = cfg.value_size_distribution
    if kind == "fixed":
        return ("fixed", cfg.value_size)
    if kind in ("uniform", "normal"):
        return (kind, cfg.value_size_min, cfg.value_size_max)
    if kind.startswith("pareto"):
        return ("pareto", 0.0, 0.2615, 25.45)
    raise ValueError(f"value_size_distribution must be fixed, uniform, normal or pareto, not {kind!r}")


def value_generator(cfg: Settings) -> ValueGenerator:
    sizes = value_sizes(cfg)
    if cfg.values == "json":
        longest = LARGEST_PARETO if cfg.value_size_distribution.startswith("pareto") else largest_value(cfg)
        return ValueGenerator(cfg.seed, sizes, pool=json_pool(cfg.seed, longest), piece=PIECE)
    return ValueGenerator(cfg.seed, sizes, cfg.compression_ratio)


def check_distributions(cfg: Settings) -> None:
    """Raise ValueError for an unknown distribution, before a worker starts."""
    key_generator(cfg.distribution, 1, 0)
    value_sizes(cfg)


class Operations:
    """An endless sequence of chunks: one operation, or a mix, on generated keys."""

    def __init__(
        self,
        cfg: Settings,
        state: ExpectedState,
        values: ValueGenerator,
        generation: int,
        keys: KeyGenerator,
        op: int = GET,
        *,
        mix: OperationMix | None = None,
        suffix: bytes = b"",
        scan_length: int = 1,
    ) -> None:
        self.cfg, self.state, self.values, self.generation = cfg, state, values, generation
        self.keys, self.op, self.mix, self.suffix, self.scan_length = keys, op, mix, suffix, scan_length
        self.writes = mix is not None or op in (PUT, UPDATE)

    def take(self, count: int, *, apply: bool = True) -> Chunk:
        """The next chunk. `apply` updates the expected state at once; otherwise the caller does it later."""
        lengths: array[int] | None = None
        codes: bytes | bytearray
        if self.mix is not None:
            codes, numbers, lengths = self.mix.take(count)
            self.state.grow(self.keys.limit)
        else:
            codes, numbers = bytes([self.op]) * count, self.keys.take(count)
            if self.op == SCAN:
                lengths = array("I", [self.scan_length]) * count
        keys = make_keys(numbers, self.cfg.key_size, self.suffix)
        values = self.values.values(numbers, self.generation) if self.writes else None
        expected = (
            bytes(count)
            if self.suffix
            else self.state.apply(codes if apply else bytes(count), numbers, self.generation)
        )
        return Chunk(codes, numbers, keys, values, lengths, expected, self.generation)


def largest_value(cfg: Settings) -> int:
    return cfg.value_size if cfg.value_size_distribution == "fixed" else cfg.value_size_max


def chunk_size(cfg: Settings) -> int:
    """Operations per chunk; fewer for large values."""
    return max(1, min(CHUNK, CHUNK_BYTES // max(1, largest_value(cfg) + cfg.key_size)))
