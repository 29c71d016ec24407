import os
import shutil
from pathlib import Path

import pytest

from lsmkv.compaction import scheduler
from lsmkv_tool.sample_db import make


@pytest.fixture(scope="session", autouse=True)
def tables_stay():
    """A database at rest tidies up its L0 after a while; its shape must not depend on a test's speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "IDLE_SECONDS", 3600.0)
        yield


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """The files of the examples. Nobody changes them: `lab` is a copy."""
    folder = tmp_path_factory.mktemp("sample")
    make(folder)
    return folder


@pytest.fixture
def lab(sample, tmp_path, monkeypatch):
    """A copy of the examples' files, with the working directory in it."""
    folder = tmp_path / "lab"
    shutil.copytree(sample, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def shared(sample, monkeypatch):
    """The examples' files themselves, for what only reads."""
    monkeypatch.chdir(sample)
    before = snapshot(sample)
    yield sample
    assert snapshot(sample) == before, "a command that only reads changed a file"


def snapshot(folder: Path):
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            info = os.lstat(os.path.join(base, name))
            found[os.path.join(base, name)] = (info.st_size, info.st_mtime_ns, info.st_ino)
    return found
