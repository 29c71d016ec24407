"""A checkout whose extension modules are not built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Without the finder of an editable install, which knows the built modules.
IMPORT = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
import lsmkv
"""


def test_the_import_says_what_to_do(tmp_path: Path) -> None:
    for package in ("lsmkv", "lsmkv_ext"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "*.c"))
    done = subprocess.run([sys.executable, "-c", IMPORT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: the extension modules of lsmkv are not built: run `make"
    )
