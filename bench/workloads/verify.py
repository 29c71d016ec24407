"""Was it the right answer? A wrong one fails the whole run: a fast engine that is wrong has no speed."""

from __future__ import annotations

from typing import Any

from ..native.workload import Ledger, Values
from .operations import GET, SCAN, UPDATE, Chunk


class WrongAnswer(Exception):
    """An engine returned something other than what was last written."""


class Checker:
    """Knows which value each generation wrote. `ledger` says which generation is current."""

    def __init__(self, ledger: Ledger, key_size: int) -> None:
        self.ledger = ledger
        self.key_size = key_size
        self.makers: dict[int, Values] = {}
        self.checked = 0

    def value(self, number: int, generation: int) -> bytes | None:
        return self.makers[generation].one(number, generation) if generation else None

    def expect(self, key: bytes, got: Any, want: bytes | None) -> None:
        self.checked += 1
        if got != want:
            raise WrongAnswer(f"key {key!r}: got {_short(got)}, expected {_short(want)}")

    def chunk(self, chunk: Chunk, kept: list[tuple[int, Any]], *, exact: bool = True) -> None:
        """Checks kept results. Not `exact`: others write meanwhile, older and newer values are right too."""
        for i, got in kept:
            code, key, number = chunk.codes[i], chunk.keys[i], chunk.numbers[i]
            if code == SCAN:
                self.pairs(key, number, got, chunk.lengths[i] if chunk.lengths else 1, exact=exact)
            elif code in (GET, UPDATE) and exact:
                self.expect(key, got, self.value(number, chunk.wanted[i]))
            elif code in (GET, UPDATE):
                self.plausible(key, number, got, required=bool(chunk.wanted[i]))

    def plausible(self, key: bytes, number: int, got: Any, *, required: bool) -> None:
        """Some generation wrote `got`; a record that was there before the writers began must still be."""
        self.checked += 1
        if got is None:
            if required:
                raise WrongAnswer(f"key {key!r} was lost")
            return
        if not any(got == maker.one(number, generation) for generation, maker in self.makers.items()):
            raise WrongAnswer(f"key {key!r}: {_short(got)} was never written")

    def pairs(self, key: bytes, number: int, got: list[Any], length: int, *, exact: bool) -> None:
        """A scan from `key`: right neighbours in order, none left out."""
        at: int | None = number
        last = b""
        for found, value in got:
            record = int(found)
            if found < key or found <= last:
                raise WrongAnswer(f"scan from {key!r} came to {found!r} after {last!r}")
            if exact:
                at = self.ledger.following(at) if at is not None else None
                if at != record:
                    raise WrongAnswer(f"scan from {key!r} came to {found!r}, expected record {at}")
                self.expect(found, value, self.value(record, self.ledger.generation(record)))
                at = record + 1
            else:
                self.plausible(found, record, value, required=True)
            last = found
        if exact and len(got) < length and at is not None and self.ledger.following(at) is not None:
            raise WrongAnswer(f"scan from {key!r} ended early, after {len(got)} records")

    def walk(self, kept: list[tuple[int, Any]], start: int, *, reverse: bool) -> None:
        """Items of a full iteration with their ordinals."""
        step = -1 if reverse else 1
        at = self.ledger.following(self.ledger.capacity - 1 if reverse else 0, step)
        ordinal = 0
        for i, (key, value) in kept:
            at = self.ledger.skip(at, start + i - ordinal, step) if at is not None else None
            ordinal = start + i
            if at is None or int(key) != at:
                raise WrongAnswer(f"item {ordinal} of the iteration is {key!r}, expected record {at}")
            self.expect(key, value, self.value(at, self.ledger.generation(at)))


def _short(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)) and len(value) > 24:
        return f"{bytes(value[:24])!r}... ({len(value)} bytes)"
    return repr(value)
