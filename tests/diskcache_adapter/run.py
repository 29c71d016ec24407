"""Runs diskcache's own tests of `Cache` on `lsmkv.Cache`: `make test-diskcache`. Needs the network, or the sdist in
`build/diskcache`.

Fails if a test that applies fails, or if fewer than 80 % apply.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import peer_suite

VERSION = "5.6.3"
LEAST = 0.8

LOCKED = "SQLite's locks: lsmkv.Cache serves one process, and its writers wait for each other without a timeout"
SQL = "SQLite's pragmas and statements"
FILES = "files for values: lsmkv.Cache has none"
NOT_APPLICABLE = {
    "test_pragma_error": SQL,
    "test_pragmas": SQL,
    "test_close_error": "a connection for each thread: lsmkv.Cache has no connections",
    "test_custom_eviction_policy": "eviction policies in SQL",
    "test_set_timeout": LOCKED,
    "test_add_timeout": LOCKED,
    "test_clear_timeout": LOCKED,
    "test_cull_timeout": LOCKED,
    "test_custom_filename_disk": FILES,
    "test_get_keyerror4": FILES,
    "test_cleanup_dirs": FILES,
    "test_disk_write_os_error": FILES,
    "test_check": "damages rows and files; lsmkv.verify and Cache.check have tests of their own",
    "test_integrity_check": "damages the SQLite file; lsmkv.verify and tests/crash know damaged files",
}


def main() -> int:
    source = peer_suite.fetch("diskcache", VERSION)
    sys.path.insert(0, str(source))
    import diskcache

    from diskcache_adapter import adapter

    diskcache.Cache = adapter.Cache
    return peer_suite.run(source, source / "tests" / "test_core.py", NOT_APPLICABLE, LEAST, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
