from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchrunner import run_cli


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    """Runs the command and returns its JSON results."""

    def run(*words: str) -> dict[str, Any]:
        path = tmp_path / "out.json"
        run_cli(*words, "--json", str(path))
        data: dict[str, Any] = json.loads(path.read_text())
        return data

    return run
