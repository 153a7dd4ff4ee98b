"""Put beside a run of another trainer by Pitwall, so that what it measures is seen while it trains.

Python reads this file at its start because its folder stands first in PYTHONPATH. Each file `on_*.py` beside it names a
module (`MODULE`) and is told once the program has imported that (`change`); what it does stands in its own text.
Nothing else changes; a sitecustomize of the environment's own is read as before.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

Change = Callable[[ModuleType], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find these modules, and changes each once it is executed."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = dict(changes)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of one of these modules."""
        change = self._changes.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _changes(folder: Path) -> dict[str, Change]:
    """Return what the files beside this one change, by module."""
    changes: dict[str, Change] = {}
    for file in sorted(folder.glob("on_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            changes[module.MODULE] = module.change
    return changes


def _read_the_next(folder: Path) -> None:
    """Execute the sitecustomize that this file stands before, if there is one."""
    places = [number for number, entry in enumerate(sys.path) if Path(entry or ".").resolve() == folder]
    rest = sys.path[max(places, default=-1) + 1 :]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    _HERE = Path(__file__).resolve().parent
    sys.meta_path.insert(0, _Finder(_changes(_HERE)))
    _read_the_next(_HERE)
