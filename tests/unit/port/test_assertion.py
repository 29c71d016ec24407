"""Invariants: evaluated in a debug build, absent from the others."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

import lsmkv_ext.port

PXD = Path(lsmkv_ext.port.__file__).parent / "assertion.pxd"


@pytest.mark.parametrize(("debug", "code"), [(0, 0), (1, -6)])
def test_a_broken_invariant_aborts_a_debug_build_only(tmp_path, debug, code):
    macro = PXD.read_text().split('"""')[1].replace("\\\\", "\\")
    source = tmp_path / "main.c"
    source.write_text(macro + "int main(void) { int n = 0; lsm_assert(++n == 1); lsm_assert(n == 2); return n; }\n")
    compiler = sysconfig.get_config_var("CC").split()[0]
    program = tmp_path / "main"
    subprocess.run([compiler, f"-DLSMKV_DEBUG={debug}", "-o", program, source], check=True)
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    assert run.returncode == code
    assert ("invariant broken: n == 2" in run.stderr) == bool(debug)
