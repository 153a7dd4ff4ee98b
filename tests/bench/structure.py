"""`make measure`: the shape of the code as two tables: packages, and kinds of files.

Modules: files directly in the folder, `__init__.py` left out; below: those of its folders, too. Layers: the longest
chain of imports between what lies directly in the folder. Chain: the longest between all modules below it. Imports
inside functions count, those for type checkers alone do not.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("console", "jobs", "profiling")
KINDS = {
    "Python": ("console/*.py", "jobs/*.py", "profiling/*.py"),
    "tests": ("tests/*.py",),
    "JavaScript": ("static/js/*.js",),
    "CSS": ("static/css/*.css",),
    "templates": ("templates/*.html",),
    "TOML of the catalog": ("jobs/*.toml",),
    "docs": ("*.md",),
}


def longest_chain(imports: Mapping[str, Iterable[str]]) -> int:
    """Return how many nodes the longest path has. Raises: graphlib.CycleError."""
    depth: dict[str, int] = {}
    for node in TopologicalSorter(imports).static_order():
        depth[node] = 1 + max((depth[below] for below in imports.get(node, ())), default=0)
    return max(depth.values(), default=0)


def between_children(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Return which direct children of a package import which: modules and folders of modules."""
    children = sorted(graph.find_children(package))
    return {
        child: {
            other
            for other in children
            if other != child and graph.direct_import_exists(importer=child, imported=other, as_packages=True)
        }
        for child in children
    }


def inside(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Return which modules below a package import which of them."""
    modules = graph.find_descendants(package)
    return {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}


def packages(graph: grimp.ImportGraph, *, depth: int) -> list[str]:
    """Return the folders of modules that have at most `depth` dots in their names."""
    return sorted(module for module in graph.modules if module.count(".") <= depth and graph.find_children(module))


def code_lines(paths: Iterable[Path]) -> list[int]:
    """Return the number of lines of each file."""
    return [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks, vendored ones left out."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file()]


def main(depth: int) -> None:
    """Print both tables."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    print(f"{'package':<28}{'modules':>8}{'below':>7}{'lines':>8}{'layers':>8}{'chain':>7}")
    for package in packages(graph, depth=depth):
        folder = ROOT / package.replace(".", "/")
        below = [path for path in sorted(folder.rglob("*.py")) if path.name != "__init__.py"]
        direct = sum(path.parent == folder for path in below)
        layers, chain = longest_chain(between_children(graph, package)), longest_chain(inside(graph, package))
        print(f"{package:<28}{direct:>8}{len(below):>7}{sum(code_lines(below)):>8}{layers:>8}{chain:>7}")
    print(f"\n{'kind':<28}{'files':>8}{'lines':>8}{'longest file':>14}")
    for kind, patterns in KINDS.items():
        counts = code_lines(tracked(*patterns))
        print(f"{kind:<28}{len(counts):>8}{sum(counts):>8}{max(counts):>14}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
