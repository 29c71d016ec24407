"""Builds an extension module from each .pyx file of the data plane (`lsmkv_ext`) and of the runner (`bench/native`).

LSMKV_DEBUG=1        bounds checks, debug symbols, invariants (`port/assertion.pxd`), -O0
LSMKV_SANITIZE=...   e.g. "address,undefined" or "thread"
LSMKV_OPTIMIZE=...   the compiler's -O level; 0 compiles fastest
LSMKV_COVERAGE=1     counts executed lines for gcov
LSMKV_NO_COUNTERS=1  compiles the read-path counters out (to measure what they cost)
LSMKV_ONLY=a,b       builds just these modules (`none`: none at all), named as `filter` or `lsmkv_ext.filter`
"""

import os
import platform
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

if platform.system() != "Linux" or sys.byteorder != "little" or sys.maxsize < 1 << 32:
    sys.exit("lsmkv builds on 64-bit, little-endian Linux; docs/stability.md has the policy for other platforms")

DEBUG = os.environ.get("LSMKV_DEBUG") == "1"
SANITIZE = os.environ.get("LSMKV_SANITIZE", "")
COVERAGE = os.environ.get("LSMKV_COVERAGE") == "1"
COUNTERS = "0" if os.environ.get("LSMKV_NO_COUNTERS") == "1" else "1"

ONLY = set(filter(None, os.environ.get("LSMKV_ONLY", "").split(",")))

# Compiled with -O1: off the hot paths, where compile time matters more than speed.
COLD = {
    "bytes_like",
    "classic_bloom",
    "codecs",
    "compare",
    "dump",
    "finalization",
    "lanes",
    "latency",
    "limits",
    "meta",
    "sst_reader",
    "sst_writer",
    "status",
    "sync_slots",
    "sync_watermark",
    "table_inspect",
    "uninterruptible",
    "verify",
    "view",
}

# Packages whose folder has another name (`package-dir` in pyproject.toml).
PACKAGES = {"bench": "lsmkv_bench"}

compile_args = ["-std=c11", "-fno-strict-aliasing", "-Wno-unused-function", "-fvisibility=hidden"]
compile_args.append("-g" if DEBUG or SANITIZE else "-g0")
link_args = ["-pthread"]
if DEBUG or SANITIZE:
    compile_args.append("-fno-omit-frame-pointer")
if SANITIZE:
    # Undefined behaviour ends the process: the tests of programs would swallow a report on stderr.
    compile_args += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=undefined", "-g1"]
    link_args.append(f"-fsanitize={SANITIZE}")
if COVERAGE:
    # Atomic: threads without the GIL count too.
    compile_args += ["--coverage", "-fprofile-update=atomic"]
    link_args.append("--coverage")
link_args.append("-ldl")


def module_name(source: Path) -> str:
    """`bench/native/workload.pyx` is `lsmkv_bench.native.workload`."""
    top, *rest = source.with_suffix("").parts
    return ".".join([PACKAGES.get(top, top), *rest])


def is_named(module: str, names: set[str]) -> bool:
    """Whether `names` holds the module's dotted name or an end of it, such as `filter` for `lsmkv_ext.filter`."""
    return any(f".{module}".endswith(f".{name}") for name in names)


def optimize(module: str) -> str:
    level = "0" if DEBUG else "1" if SANITIZE or is_named(module, COLD) else "3"
    return "-O" + os.environ.get("LSMKV_OPTIMIZE", level)


DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "embedsignature.format": "clinic",
    "binding": False,
    "freethreading_compatible": False,
}

sources = sorted([*Path("lsmkv_ext").rglob("*.pyx"), *Path("bench/native").glob("*.pyx")])

extensions = [
    Extension(
        module,
        [str(source)],
        extra_compile_args=[*compile_args, optimize(module)],
        extra_link_args=link_args,
        define_macros=[
            ("_GNU_SOURCE", "1"),
            ("LSMKV_COUNTERS", COUNTERS),
            ("LSMKV_DEBUG", "1" if DEBUG else "0"),
            ("CYTHON_USE_MODULE_STATE", "0"),
        ],
    )
    for module, source in zip(map(module_name, sources), sources, strict=True)
    if not ONLY or is_named(module, ONLY)
]

# Cython's worker processes import this file from Python 3.14 on, and must not build.
if __name__ == "__main__":
    setup(
        ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES, nthreads=os.cpu_count() or 1),
        options={"build_ext": {"parallel": os.cpu_count() or 1}},
    )
