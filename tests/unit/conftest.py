import sys
from pathlib import Path

import pytest

import lsmkv
from lsmkv.compaction import automatic

# The helper modules beside the tests (treetext, databases) are imported by name.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def tables_stay():
    """No idle compaction: the shape of a tree must not depend on the speed of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(automatic, "IDLE_SECONDS", 3600.0)
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with lsmkv.open(path) as db:
        yield db
