"""The parts that `make test` runs the tests in, and the files in which the tests of a part are."""

from collections.abc import Mapping, Sequence
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
# Of each part after the first: the markers of which a file has one, beside the expression that chooses its tests.
MARKERS: Mapping[str, Sequence[str]] = {
    "engine": BUSY,
    "pages": ("browser",),
    "faults": ("faults",),
    "consoles": ("journey",),
    "journeys": ("journey",),
}


def is_marked(path: Path, text: str, markers: Sequence[str]) -> bool:
    """Whether a file, or a folder that it is in, has one of the markers."""
    folders = {MARKED[folder] for folder in path.parents if folder in MARKED}
    return not folders.isdisjoint(markers) or any(f"mark.{marker}" in text for marker in markers)


def files_of(part: str, *, slow_first: bool = False) -> list[str]:
    """Return the files that hold the tests of a part; of the first part every test is looked at, so nothing is named.

    What a part does not run it need not import either: collecting everything takes 20 s of a core. With
    `slow_first` files with a slow test come first, so that no process is left alone with one at the end.
    """
    if part not in MARKERS:
        return []
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))}
    files = [path for path, text in texts.items() if is_marked(path, text, MARKERS[part])]
    return [str(path) for path in sorted(files, key=lambda path: slow_first and "mark.slow(" not in texts[path])]
