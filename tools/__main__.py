"""Starts `lsmkv-tool`, or says which extra it needs."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("click", "rich")


def main() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"lsmkv-tool needs {' and '.join(missing)}: pip install 'lsmkv[tool]'")
    from lsmkv_tool import cli

    cli.main()


if __name__ == "__main__":
    main()
