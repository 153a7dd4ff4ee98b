"""A folder is a registry: list its plugin files without importing them, load one by name.

A plugin file ends with `PLUGIN = ...`; the contract file next to the folder has the typed lookup.
"""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any


class UnknownPlugin(ValueError):
    """No file of that name stands in the folder."""


@cache
def names(folder: str) -> tuple[str, ...]:
    """Return the sorted names of the plugins in the package `folder`, importing none of them.

    A file with the folder's name in the singular (`adapters/adapter.py`) is its contract, no plugin.
    """
    package: ModuleType = importlib.import_module(folder)
    contract = folder.rpartition(".")[2].removesuffix("s")
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in modules if not name.startswith("_") and name != contract))


def load(folder: str, name: str) -> Any:
    """Import the one module `folder.name` and return its PLUGIN.

    Raises: UnknownPlugin, naming the plugins there are.
    """
    if name not in names(folder):
        raise UnknownPlugin(f"{name!r} is not one of {', '.join(names(folder))}.")
    return importlib.import_module(f"{folder}.{name}").PLUGIN
