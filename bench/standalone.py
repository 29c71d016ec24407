"""The command line that the measuring modules share: arguments, then the figures as text or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

Figures = dict[str, Any]


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made


def put_out(figures: Figures, as_json: bool, show: Callable[[Figures], None]) -> None:
    if as_json:
        json.dump(figures, sys.stdout, indent=1)
        print()
    else:
        show(figures)
