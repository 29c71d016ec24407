import os
import shutil
from pathlib import Path

import pytest

from lsmkv.compaction import automatic
from lsmkv_tool.sample_db import make_samples


@pytest.fixture(scope="session", autouse=True)
def no_idle_compaction():
    """Turn off idle compaction: the tree must not depend on a test's speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(automatic, "IDLE_SECONDS", 3600.0)
        yield


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """The sample files. Tests that change them use the copy `lab`."""
    directory = tmp_path_factory.mktemp("sample")
    make_samples(directory)
    return directory


@pytest.fixture
def lab(sample, tmp_path, monkeypatch):
    """A copy of the sample files as the working directory."""
    directory = tmp_path / "lab"
    shutil.copytree(sample, directory)
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def shared(sample, monkeypatch):
    """The sample files as the working directory, for tests that only read."""
    monkeypatch.chdir(sample)
    before = snapshot(sample)
    yield sample
    assert snapshot(sample) == before, "a read-only command changed a file"


def snapshot(directory: Path):
    found = {}
    for base, _, names in os.walk(directory):
        for name in names:
            info = os.lstat(os.path.join(base, name))
            found[os.path.join(base, name)] = (info.st_size, info.st_mtime_ns, info.st_ino)
    return found
