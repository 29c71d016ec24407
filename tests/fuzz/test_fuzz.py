"""Mutated inputs to every parser: no crash, no surprise, no hang, bounded memory. Each parser runs in a
process of its own, so that a crash is a failed test and not the end of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from soak import figure, shards, share

from .targets import TARGETS

SHARDS = shards(20)
COUNT = share(25_000, 20_000_000, SHARDS)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_the_parser(name, shard, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    seed = f"{os.environ.get('LSMKV_FUZZ_SEED', '1')}/{shard}"
    command = [sys.executable, "-m", f"{__package__}.run", name, "--count", str(COUNT), "--seed", seed]
    done = subprocess.run(
        [*command, "--save", str(tmp_path / "finding")],
        env=environment, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    ran, _, accepted = done.stdout.split()[:3]
    assert int(ran) == COUNT
    # A target that never accepts anything only ever tests its first check.
    assert int(accepted) > 0
    outcome = "0 crashes, none over a second, memory bounded"
    figure(f"fuzz, {name}", outcome, inputs=int(ran), accepted=int(accepted))
