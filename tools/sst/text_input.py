"""Keys and values read from JSON lines or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import TextIO

from lsmkv_tool import keys
from lsmkv_tool.exits import Usage

Pair = tuple[bytes, bytes | None]


def to_bytes(value: object, where: str) -> bytes:
    if not isinstance(value, str):
        found = type(value).__name__
        raise Usage(f"{where}: a key or value must be a string (hex: or base64: for binary data), not {found}")
    try:
        return keys.parse(value)
    except ValueError as error:
        raise Usage(f"{where}: {error}") from error


def read_json_lines(source: TextIO) -> Iterator[Pair]:
    """Read {"key": ..., "value": ...} per line. A null value is a delete."""
    for n, line in enumerate(source, 1):
        if not line.strip():
            continue
        where = f"line {n}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise Usage(f"{where}: not JSON: {error}") from error
        if not isinstance(row, dict) or "key" not in row or "value" not in row:
            raise Usage(f'{where}: expected {{"key": ..., "value": ...}}')
        yield to_bytes(row["key"], where), None if row["value"] is None else to_bytes(row["value"], where)


def read_csv(source: TextIO) -> Iterator[Pair]:
    """Read key,value per line, after an optional heading `key,value`. A line with only a key is a delete."""
    for n, row in enumerate(csv.reader(source), 1):
        if not row or (n == 1 and row[:2] == ["key", "value"]):
            continue
        where = f"line {n}"
        if len(row) > 2:
            raise Usage(f"{where}: expected key,value, found {len(row)} columns")
        yield to_bytes(row[0], where), to_bytes(row[1], where) if len(row) == 2 else None
