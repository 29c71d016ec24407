"""Builds an sdist and a wheel from a clean clone and installs each of them, and the clone itself, into an
environment of its own, where the commands and a put and a get must work from another folder: `make dist-check`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {"lsmkv": "lsmkv", "lsmkv_ext": "lsmkv_ext", "lsmkv_bench": "bench", "lsmkv_tool": "tools"}
IN_WHEEL = re.compile(
    r"lsmkv-[^/]+\.dist-info/.+"
    r"|lsmkv(_ext|_bench|_tool)?/.+\.(py|pyi|pxd|so|typed|html)"
)
NOT_IN_SDIST = re.compile(r"(^|/)(build|\.[^/]+|__pycache__)/|(lsmkv_ext|bench)/.*\.c$|\.(so|o)$")

USE = """
import sys, lsmkv, lsmkv_ext
assert not lsmkv.__file__.startswith(sys.argv[1]), lsmkv.__file__
with lsmkv.open("db") as db:
    db.put(b"k", b"v")
with lsmkv.open("db", "r") as db:
    assert db[b"k"] == b"v" and db.get(b"none") is None
"""


def run(*command: str | Path, cwd: Path) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def environment(folder: Path, python: str | Path = sys.executable) -> Path:
    """The folder of the commands of a new virtual environment of an interpreter."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin"


def fail_if(problem: str, names: set[str]) -> None:
    if names:
        sys.exit(f"{problem}: {sorted(names)}")


def check_wheel(path: Path, clone: Path) -> None:
    # auditwheel adds entries for folders.
    names = {name for name in zipfile.ZipFile(path).namelist() if not name.endswith("/")}
    fail_if("stray files in the wheel", {name for name in names if not IN_WHEEL.fullmatch(name)})
    wanted = {f"{package}/py.typed" for package in ("lsmkv", "lsmkv_ext")}
    modules = set()
    for package, folder in PACKAGES.items():
        sources = [p.relative_to(clone / folder) for p in (clone / folder).rglob("*")]
        wanted |= {f"{package}/{p}" for p in sources if p.suffix in (".py", ".pyi", ".pxd", ".typed", ".html")}
        modules |= {f"{package}/{p.with_suffix('')}" for p in sources if p.suffix == ".pyx"}
    wanted.add(f"lsmkv-{path.name.split('-')[1]}.dist-info/licenses/LICENSE")
    fail_if("missing in the wheel", wanted - names)
    fail_if("not built", modules - {name.split(".")[0] for name in names if name.endswith(".so")})


def check_sdist(path: Path, clone: Path) -> None:
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    fail_if("stray files in the sdist", {name for name in names if NOT_IN_SDIST.search(name)})
    sources = (p.relative_to(clone) for top in ("lsmkv_ext", "bench/native") for p in (clone / top).rglob("*"))
    wanted = {str(p) for p in sources if p.suffix in (".pyx", ".pxd", ".pxi", ".pyi", ".py")}
    wanted |= {"setup.py", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"}
    wanted |= {str(p.relative_to(clone)) for top in ("docs", "tests") for p in (clone / top).rglob("*") if p.is_file()}
    fail_if("missing in the sdist", wanted - names)


def check_install(what: Path, place: Path, python: str | Path = sys.executable) -> None:
    place.mkdir()
    commands = environment(place / "venv", python)
    run(commands / "python", "-m", "pip", "install", "-q", what, cwd=place)
    run(commands / "python", "-W", "error", "-c", USE, ROOT, cwd=place)
    run(commands / "lsmkv-bench", "--help", cwd=place)
    refused = subprocess.run(
        [commands / "lsmkv-tool", "--help"], cwd=place, capture_output=True, text=True, check=False
    )
    if "pip install 'lsmkv[tool]'" not in refused.stderr:
        sys.exit(f"lsmkv-tool does not name its extra: {refused}")
    run(commands / "python", "-m", "pip", "install", "-q", f"{what}[tool]", cwd=place)
    run(commands / "lsmkv-tool", "--help", cwd=place)
    run(commands / "lsmkv-tool", "db", "info", "db", cwd=place)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lsmkv-dist-") as name:
        folder = Path(name)
        clone, dist = folder / "clone", folder / "dist"
        run("git", "clone", "-q", ROOT, clone, cwd=folder)
        python = environment(folder / "build") / "python"
        run(python, "-m", "pip", "install", "-q", "build", cwd=folder)
        run(python, "-m", "build", "--outdir", dist, clone, cwd=folder)
        (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
        check_wheel(wheel, clone)
        check_sdist(sdist, clone)
        for number, what in enumerate([wheel, sdist, clone]):
            check_install(what, folder / f"place{number}")
    print("the sdist, the wheel and the clone install and work")


if __name__ == "__main__":
    main()
