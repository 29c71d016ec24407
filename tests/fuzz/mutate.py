"""Seeded mutation of example inputs."""

from __future__ import annotations

import random

INTERESTING = [0, 1, 2, 7, 8, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1]
WIDE = [*INTERESTING, 2**32, 2**40, 2**48, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 4096]


class Mutator:
    def __init__(self, seed: int | str, examples: list[bytes]) -> None:
        self.rng = random.Random(seed)
        self.examples = examples
        self._kinds = [
            self._flip, self._flip, self._byte, self._byte, self._u32, self._u64, self._varint, self._cut,
            self._insert, self._erase, self._copy, self._splice,
        ]  # fmt: skip

    def next(self) -> bytearray:
        data = bytearray(self.rng.choice(self.examples))
        for _ in range(1 + int(self.rng.expovariate(0.8))):
            self.rng.choice(self._kinds)(data)
        return data

    def in_place(self, data: bytearray, start: int, stop: int) -> None:
        """Changes bytes of data[start:stop] and no length."""
        part = data[start:stop]
        if part:
            self.rng.choice(self._kinds[:7])(part)
            data[start:stop] = part[: stop - start].ljust(stop - start, b"\0")

    def _at(self, data: bytearray) -> int:
        return self.rng.randrange(len(data)) if data else 0

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] ^= 1 << self.rng.randrange(8)

    def _byte(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] = self.rng.choice([0, 1, 0x7F, 0x80, 0xFF, self.rng.randrange(256)])

    def _number(self, data: bytearray, width: int, choices: list[int]) -> None:
        at = self._at(data)
        value = self.rng.choice(choices)
        if self.rng.random() < 0.3:
            old = int.from_bytes(data[at : at + width], "little")
            value = old + self.rng.randint(-16, 16)
        data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")[: len(data) - at]

    def _u32(self, data: bytearray) -> None:
        self._number(data, 4, INTERESTING)

    def _u64(self, data: bytearray) -> None:
        self._number(data, 8, WIDE)

    def _varint(self, data: bytearray) -> None:
        at = self._at(data)
        long = b"\xff" * self.rng.randrange(1, 11) + bytes([self.rng.randrange(128)])
        data[at : at + len(long)] = long[: len(data) - at]

    def _cut(self, data: bytearray) -> None:
        del data[self._at(data) :]

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self.rng.randbytes(self.rng.randrange(1, 16))

    def _erase(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self.rng.randrange(1, 16)]

    def _copy(self, data: bytearray) -> None:
        source, target, n = self._at(data), self._at(data), self.rng.randrange(1, 64)
        data[target : target + n] = data[source : source + n]

    def _splice(self, data: bytearray) -> None:
        other = self.rng.choice(self.examples)
        at = self._at(data)
        start = self.rng.randrange(len(other)) if other else 0
        data[at:] = other[start:]
