"""Chunks of operations, made before the clock starts."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from ..native.workload import OPS, Ledger, Mix, Stream, Values, make_keys
from ..settings import Settings

CHUNK = 16384  # small enough to stay in the processor's cache, long against its own set-up
CHUNK_BYTES = 16 << 20
GET, PUT, DELETE, SCAN, UPDATE = (OPS[name] for name in ("get", "put", "delete", "scan", "update"))


@dataclass
class Chunk:
    codes: bytes | bytearray
    numbers: array[int]
    keys: list[bytes]
    values: list[bytes] | None
    lengths: array[int] | None
    wanted: bytes | bytearray  # generation each operation finds before it runs, 0 for "not there"
    generation: int

    def first(self, count: int) -> Chunk:
        """Its first operations."""
        if count >= len(self.keys):
            return self
        return Chunk(
            self.codes[:count],
            self.numbers[:count],
            self.keys[:count],
            self.values[:count] if self.values is not None else None,
            self.lengths[:count] if self.lengths is not None else None,
            self.wanted[:count],
            self.generation,
        )

    @property
    def user_bytes(self) -> int:
        """Bytes of key and value that the writes among the operations carry."""
        if self.values is None:
            return 0
        writes = (PUT, UPDATE)
        pairs = zip(self.codes, self.keys, self.values, strict=True)
        return sum(len(k) + len(v) for code, k, v in pairs if code in writes)


def distribution_stream(text: str, num: int, seed: int) -> Stream:
    """`uniform`, `zipf:0.99`, `latest`, `latest:0.8`, `sequential`, `unique`."""
    kind, _, theta = text.partition(":")
    if kind in ("zipfian", "zipf"):
        return Stream("zipf", num, seed, theta=float(theta or 0.99))
    if kind == "latest":
        return Stream("latest", num, seed, theta=float(theta or 0.99))
    if kind not in ("uniform", "sequential", "unique"):
        raise ValueError(f"distribution {text!r} is not uniform, zipf:<theta> or latest")
    return Stream(kind, num, seed)


def check_words(cfg: Settings) -> None:
    """What a worker would stumble over is refused before the first one starts."""
    distribution_stream(cfg.distribution, 1, 0)
    value_sizes(cfg)


def value_sizes(cfg: Settings) -> tuple[object, ...]:
    if cfg.value_size_distribution == "fixed":
        return ("fixed", cfg.value_size)
    if cfg.value_size_distribution in ("uniform", "normal"):
        return (cfg.value_size_distribution, cfg.value_size_min, cfg.value_size_max)
    if cfg.value_size_distribution.startswith("pareto"):
        return ("pareto", 0.0, 0.2615, 25.45)
    raise ValueError(
        f"value size distribution {cfg.value_size_distribution!r}: fixed, uniform, normal or pareto"
    )


class Work:
    """An endless supply of chunks: one operation on a stream of numbers, or a mix."""

    def __init__(
        self,
        cfg: Settings,
        ledger: Ledger,
        values: Values,
        generation: int,
        stream: Stream,
        op: int = GET,
        *,
        mix: Mix | None = None,
        suffix: bytes = b"",
        scan_length: int = 1,
    ) -> None:
        self.cfg, self.ledger, self.values, self.generation = cfg, ledger, values, generation
        self.stream, self.op, self.mix, self.suffix, self.scan_length = stream, op, mix, suffix, scan_length
        self.writes = mix is not None or op in (PUT, UPDATE)

    def take(self, count: int, *, apply: bool = True) -> Chunk:
        """The next chunk. `apply` enters its writes in the ledger at once; else the caller does later."""
        lengths: array[int] | None = None
        codes: bytes | bytearray
        if self.mix is not None:
            codes, numbers, lengths = self.mix.take(count)
            self.ledger.grow(self.stream.limit)
        else:
            codes, numbers = bytes([self.op]) * count, self.stream.take(count)
            if self.op == SCAN:
                lengths = array("I", [self.scan_length]) * count
        keys = make_keys(numbers, self.cfg.key_size, self.suffix)
        values = self.values.make(numbers, self.generation) if self.writes else None
        wanted = (
            bytes(count)
            if self.suffix
            else self.ledger.play(codes if apply else bytes(count), numbers, self.generation)
        )
        return Chunk(codes, numbers, keys, values, lengths, wanted, self.generation)


def largest_value(cfg: Settings) -> int:
    return cfg.value_size if cfg.value_size_distribution == "fixed" else cfg.value_size_max


def chunk_size(cfg: Settings) -> int:
    """Operations per chunk, fewer where values are large."""
    return max(1, min(CHUNK, CHUNK_BYTES // max(1, largest_value(cfg) + cfg.key_size)))
