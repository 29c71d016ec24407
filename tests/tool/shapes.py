"""Shapes of JSON documents: their fields and types. Run as a program to write schema.json."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SCHEMA_FILE = Path(__file__).with_name("schema.json")
# Objects whose keys are data, not fields.
FREE = {"reasons"}


def shape_of(value: Any, name: str = "") -> Any:
    if value is None:
        return "any"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        shapes = [shape_of(item) for item in value]
        merged = shapes[0] if shapes else "any"
        for shape in shapes[1:]:
            merged = merge(merged, shape)
        return [merged]
    if name in FREE:
        return {"*": shape_of(next(iter(value.values()), None))}
    return {key: shape_of(item, key) for key, item in value.items()}


def merge(a: Any, b: Any) -> Any:
    if a == "any" or b == "any":
        return b if a == "any" else a
    if isinstance(a, list) and isinstance(b, list):
        return [merge(a[0], b[0])]
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: merge(a.get(key, "any"), b.get(key, "any")) for key in a | b}
    return a if a == b else "any"


def misfit(value: Any, shape: Any, where: str = "$") -> str | None:
    """Return where a value differs from its shape, or None. null has every shape."""
    if value is None or shape == "any":
        return None
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where}: not an object"
        if "*" in shape:
            pairs = [(key, item, shape["*"]) for key, item in value.items()]
        elif value.keys() != shape.keys():
            return f"{where}: fields differ: {sorted(value.keys() ^ shape.keys())}"
        else:
            pairs = [(key, item, shape[key]) for key, item in value.items()]
        found = (misfit(item, inner, f"{where}.{key}") for key, item, inner in pairs)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where}: not a list"
        found = (misfit(item, shape[0], f"{where}[{i}]") for i, item in enumerate(value))
    else:
        return None if shape_of(value) == shape else f"{where}: {shape_of(value)} instead of {shape}"
    return next((problem for problem in found if problem), None)


def write() -> None:
    from catalogue import READING, WRITING
    from toolrunner import tool

    from lsmkv.compaction import automatic
    from lsmkv_tool.sample_db import make_samples

    automatic.IDLE_SECONDS = 3600.0  # no idle compaction changes the sample
    shapes = {}
    with tempfile.TemporaryDirectory() as directory:
        make_samples(Path(directory))
        os.chdir(directory)
        for line in [*READING, *WRITING]:
            shapes[line] = shape_of(tool(*line.split(), "--json").json["result"])
    SCHEMA_FILE.write_text(json.dumps(shapes, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    write()
