import os
import sys
import tempfile
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


@pytest.fixture
def on_disk():
    """A folder in a file system that can tell what is in the page cache, which one in memory cannot."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        probe = Path(folder, "probe")
        probe.write_bytes(bytes(4096))
        with probe.open("rb") as opened:
            try:
                os.preadv(opened.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            except (OSError, AttributeError):
                pytest.skip("the file system cannot tell what is in the page cache")
        yield Path(folder)
