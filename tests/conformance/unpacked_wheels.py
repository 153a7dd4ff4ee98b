"""The unpacked wheels of requirements/frameworks.txt, fetched by hash where they are not there yet."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).resolve().parents[2] / "requirements" / "wheels.py"


@cache
def _script() -> ModuleType:
    """Import the script, which is no package: it runs before anything is installed."""
    spec = importlib.util.spec_from_file_location("requirements_wheels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def unpacked(name: str) -> Path:
    """Return the folder of `<package>-<version>`. Raises: SystemExit with a sentence if it cannot be fetched."""
    folder: Path = _script().unpacked(name)
    return folder
