"""Checks the layers of the data plane, which import-linter cannot see: it reads Python's imports, not Cython's.

A package (a directory or a module at the top of lsmkv_ext) may use only itself and the packages to its left in
pyproject.toml, and no modules may import each other in a circle.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Known to every package, and importing none of them.
LEAVES = {"errors"}
IMPORT = re.compile(r"^\s*from (lsmkv_ext[\w.]*) c?import \(?\s*(\w+)|^\s*c?import (lsmkv_ext[\w.]+)", re.MULTILINE)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path, modules: set[str]) -> Iterator[str]:
    for package, name, plain in IMPORT.findall(path.read_text()):
        module = plain or (f"{package}.{name}" if f"{package}.{name}" in modules else package)
        yield module


def main() -> int:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["lsmkv"]["cimports"]["packages"]
    sources = [path for path in (ROOT / "lsmkv_ext").rglob("*.p[yx]*") if path.suffix in {".pyx", ".pxd"}]
    modules = {module_name(path) for path in sources}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    problems = []
    for path in sources:
        module = module_name(path)
        package = module.split(".")[1]
        for used in imports(path, modules):
            other = used.split(".")[1]
            if other in LEAVES:
                continue
            if other not in packages or package not in packages:
                unknown = package if package not in packages else other
                problems.append(f"{module}: {unknown} is not among the packages in pyproject.toml")
            elif packages.index(other) > packages.index(package):
                problems.append(f"{module} uses {used}: {other} stands to the right of {package}")
            if used != module:
                graph[module].add(used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        problems.append("cycle: " + " -> ".join(error.args[1]))
    print(
        "\n".join(sorted(set(problems)))
        or f"{len(modules)} modules in {len(packages)} packages: no import points upward"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
