"""Builds the data plane: every `lsmkv_ext/*.pyx` becomes one extension module.

LSMKV_DEBUG=1        bounds checks, invariants, no optimisation
LSMKV_SANITIZE=...   e.g. "address,undefined" or "thread"
LSMKV_OPTIMIZE=...   the compiler's -O, for a build that counts more than what it builds
LSMKV_NO_COUNTERS=1  compiles the read-path counters out (to measure what they cost)
LSMKV_ONLY=a,b       builds just these modules (`none`: none at all)
"""

import os
import platform
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("LSMKV_DEBUG") == "1"
SANITIZE = os.environ.get("LSMKV_SANITIZE", "")
COUNTERS = "0" if os.environ.get("LSMKV_NO_COUNTERS") == "1" else "1"

ONLY = set(filter(None, os.environ.get("LSMKV_ONLY", "").split(",")))

# Modules around the data plane whose speed nobody notices; the compiler's time for them is noticed by all who build.
COLD = {
    "bytes_like",
    "codecs",
    "compare",
    "finalization",
    "limits",
    "sst",
    "status",
    "table_inspect",
    "unblocked",
    "uninterruptible",
    "verify",
}

compile_args = ["-std=c11", "-fno-strict-aliasing", "-Wno-unused-function", "-fvisibility=hidden"]
compile_args.append("-g" if DEBUG or SANITIZE else "-g0")
link_args = ["-pthread"]
if DEBUG or SANITIZE:
    compile_args.append("-fno-omit-frame-pointer")
if SANITIZE:
    # Undefined behaviour ends the process: on stderr, which the tests of programs swallow, nobody would see it.
    compile_args += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=undefined", "-g1"]
    link_args.append(f"-fsanitize={SANITIZE}")
if platform.system() == "Linux":
    link_args.append("-ldl")



def optimize(module: str) -> str:
    small = DEBUG or SANITIZE or module in COLD
    return "-O" + os.environ.get("LSMKV_OPTIMIZE", "1" if small else "3")


DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "binding": False,
    "freethreading_compatible": False,
}

extensions = [
    Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        extra_compile_args=[*compile_args, optimize(source.stem)],
        extra_link_args=link_args,
        define_macros=[
            ("_GNU_SOURCE", "1"),
            ("LSMKV_COUNTERS", COUNTERS),
            ("LSMKV_DEBUG", "1" if DEBUG else "0"),
            ("CYTHON_USE_MODULE_STATE", "0"),
        ],
    )
    for source in sorted(Path("lsmkv_ext").rglob("*.pyx"))
    if not ONLY or source.stem in ONLY
]

# From Python 3.14 on the processes that Cython starts import this file: they must not build in their turn.
if __name__ == "__main__":
    setup(
        ext_modules=cythonize(extensions, compiler_directives=DIRECTIVES, nthreads=os.cpu_count() or 1),
        options={"build_ext": {"parallel": os.cpu_count() or 1}},
    )
