"""`import lsmkv` imports few modules. Times vary, so this counts them."""

import json
import subprocess
import sys

import pytest

# On CPython 3.11; a few of the standard library's differ between versions.
MOST_MODULES = 240

# Each is imported at its first use.
LATE = {
    "lsmkv.bulk",
    "lsmkv.cache",
    "lsmkv.dbm",
    "lsmkv.integrations",
    "lsmkv.prometheus",
    "lsmkv.recovery.repair",
    "lsmkv.recovery.verify",
    "lsmkv.repository",
    "lsmkv.stats.introspect",
    "lsmkv.stats.metrics",
    "lsmkv_ext.arrow",
    "lsmkv_ext.filter.bloom",
    "lsmkv_ext.table.sst_writer",
    "asyncio",
    "multiprocessing",
    "numpy",
    "subprocess",
    "unittest",
}

OPEN = """
import lsmkv
with lsmkv.open("{path}") as db:
    db[b"ada"] = b"1815"
    list(db.items())
"""


def modules_after(program):
    code = (
        f"import sys, json; before = set(sys.modules)\n{program}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_an_import_needs_few_modules():
    assert len(modules_after("import lsmkv")) <= MOST_MODULES


@pytest.mark.parametrize("program", ["import lsmkv", OPEN])
def test_an_import_and_an_open_leave_out_late_modules(program, tmp_path):
    assert modules_after(program.format(path=tmp_path / "db")) & LATE == set()


def test_the_late_modules_of_lsmkv_exist():
    own = {name for name in LATE if name.startswith("lsmkv")}
    assert own <= modules_after("".join(f"import {name}\n" for name in sorted(own)))
