"""Runs plyvel's own tests on `lsmkv.compat.plyvel`: `make test-plyvel`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import peer_suite

import lsmkv.compat.plyvel

VERSION = "1.5.1"
LEAST = 51 / 54
NOT_APPLICABLE = {
    "test_comparator": "keys are ordered by their bytes",
    "test_approximate_sizes": "writes keys of 100 KB: keys have at most 65,535 bytes",
}


def main() -> int:
    sys.modules["plyvel"] = lsmkv.compat.plyvel
    source = peer_suite.fetch("plyvel", VERSION)
    return peer_suite.run(source, source / "test" / "test_plyvel.py", NOT_APPLICABLE, LEAST, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
