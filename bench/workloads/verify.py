"""Verification of answers. A wrong answer fails the run."""

from __future__ import annotations

from typing import Any

from ..native.workload import ExpectedState, ValueGenerator
from .operations import GET, SCAN, UPDATE, Chunk


class WrongAnswer(Exception):
    """An engine returned something other than the last written value."""


class Verifier:
    """Compares answers with the expected state. `generators` has the values that each generation wrote."""

    def __init__(self, state: ExpectedState) -> None:
        self.state = state
        self.generators: dict[int, ValueGenerator] = {}
        self.checked = 0

    def value(self, number: int, generation: int) -> bytes | None:
        return self.generators[generation].value(number, generation) if generation else None

    def expect(self, key: bytes, got: Any, want: bytes | None) -> None:
        self.checked += 1
        if got != want:
            raise WrongAnswer(f"key {key!r}: got {_short(got)}, expected {_short(want)}")

    def chunk(self, chunk: Chunk, kept: list[tuple[int, Any]], *, exact: bool = True) -> None:
        """Verify results of a chunk. While other threads write (not `exact`), any written value is right."""
        for i, got in kept:
            code, key, number = chunk.codes[i], chunk.keys[i], chunk.numbers[i]
            if code == SCAN:
                self.scan(key, number, got, chunk.lengths[i] if chunk.lengths else 1, exact=exact)
            elif code in (GET, UPDATE) and exact:
                self.expect(key, got, self.value(number, chunk.expected[i]))
            elif code in (GET, UPDATE):
                self.written_once(key, number, got, required=bool(chunk.expected[i]))

    def written_once(self, key: bytes, number: int, got: Any, *, required: bool) -> None:
        """Some generation wrote `got`. A `required` record must be present."""
        self.checked += 1
        if got is None:
            if required:
                raise WrongAnswer(f"key {key!r} was lost")
            return
        if not any(got == values.value(number, g) for g, values in self.generators.items()):
            raise WrongAnswer(f"key {key!r}: {_short(got)} was never written")

    def scan(self, key: bytes, number: int, got: list[Any], length: int, *, exact: bool) -> None:
        """A scan from `key` returns every record in order."""
        at: int | None = number
        last = b""
        for found, value in got:
            record = int(found)
            if found < key or found <= last:
                raise WrongAnswer(f"scan from {key!r} returned {found!r} after {last!r}")
            if exact:
                at = self.state.next_present(at) if at is not None else None
                if at != record:
                    raise WrongAnswer(f"scan from {key!r} returned {found!r}, expected record {at}")
                self.expect(found, value, self.value(record, self.state.generation(record)))
                at = record + 1
            else:
                self.written_once(found, record, value, required=True)
            last = found
        if exact and len(got) < length and at is not None and self.state.next_present(at) is not None:
            raise WrongAnswer(f"scan from {key!r} ended early, after {len(got)} records")

    def iteration(self, kept: list[tuple[int, Any]], start: int, *, reverse: bool) -> None:
        """Items of a full iteration, each with its position after `start`."""
        step = -1 if reverse else 1
        at = self.state.next_present(self.state.capacity - 1 if reverse else 0, step)
        position = 0
        for i, (key, value) in kept:
            at = self.state.advance(at, start + i - position, step) if at is not None else None
            position = start + i
            if at is None or int(key) != at:
                raise WrongAnswer(f"item {position} of the iteration is {key!r}, expected record {at}")
            self.expect(key, value, self.value(at, self.state.generation(at)))


def _short(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)) and len(value) > 24:
        return f"{bytes(value[:24])!r}... ({len(value)} bytes)"
    return repr(value)
