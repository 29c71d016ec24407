import sys
from pathlib import Path

import pytest

from lsmkv.compaction import scheduler

# The helpers beside the tests (treetext) are imported by their own name.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def tables_stay():
    """A database at rest tidies up its L0 after a while; its shape must not depend on a test's speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "IDLE_SECONDS", 3600.0)
        yield
