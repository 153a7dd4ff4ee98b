"""The parts that `make test` runs the tests in, and the files in which the tests of a part are."""

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

TESTS = Path(__file__).resolve().parent
# Whole folders that are run in a part of their own: what starts processes, and what starts a console.
MARKED: Mapping[Path, str] = {
    TESTS / folder: marker
    for marker, folders in {
        "processes": ("jobs/runner", "console/embedded", "profiling"),
        "journey": ("journeys",),
    }.items()
    for folder in folders
}
BUSY = ("engine", "ray", "processes")
# Of each part but the light ones: the markers of which a file has one, beside the expression that chooses its tests.
MARKERS: Mapping[str, Sequence[str]] = {
    "engine": BUSY,
    "pages": ("browser",),
    "consoles": ("journey",),
    "journeys": ("journey",),
}
# What needs little of the machine, in two processes side by side: each imports its own half of the files, and no other.
HALVES = ("light-1", "light-2")
# What loads torch and transformers, which takes 8 s, or may well: all of it is in the first half.
ENGINE = TESTS / "jobs" / "engine"
# How many times as long as others its tests take for a byte: pages, and what is held over all of a kind.
DENSE: Mapping[str, int] = {"console": 3, "contracts": 6, "conformance": 10}
LOADS_TORCH = re.compile(r"^(from|import) (torch|transformers|jobs\.engine|tests\.jobs\.engine)\b", re.MULTILINE)


def is_marked(path: Path, text: str, markers: Sequence[str]) -> bool:
    """Whether a file, or a folder that it is in, has one of the markers."""
    folders = {MARKED[folder] for folder in path.parents if folder in MARKED}
    return not folders.isdisjoint(markers) or any(f"mark.{marker}" in text for marker in markers)


def files_of(part: str) -> list[str]:
    """Return the files that hold the tests of a part, and perhaps others of its files' tests.

    What a part does not run it need not import either: collecting everything takes 20 s of a core.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))}
    if part in HALVES:
        light = [path for path in texts if not any(folder in MARKED for folder in path.parents)]
        first = {path for path in light if ENGINE in path.parents or LOADS_TORCH.search(texts[path])}
        return [str(path) for path in sorted(_halves(light, first)[HALVES.index(part)])]
    return [str(path) for path, text in texts.items() if is_marked(path, text, MARKERS[part])]


def _halves(paths: Sequence[Path], first: Set[Path]) -> tuple[list[Path], list[Path]]:
    """Return two halves with about as much to do, as sizes of files tell; those of `first` are in the first one."""
    weights = {path: path.stat().st_size * DENSE.get(path.relative_to(TESTS).parts[0], 1) for path in paths}
    halves: tuple[list[Path], list[Path]] = ([], [])
    totals = [0, 0]
    for path in sorted(paths, key=lambda path: (path not in first, -weights[path])):
        half = 0 if path in first else totals.index(min(totals))
        halves[half].append(path)
        totals[half] += weights[path]
    return halves
