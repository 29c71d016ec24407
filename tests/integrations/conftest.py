"""Against the real counterparts, on loopback. They are installed by `make test-integrations` alone."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

if os.environ.get("LSMKV_INTEGRATIONS") != "1":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"
