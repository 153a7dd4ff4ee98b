"""Lets Pitwall record a trainer that knows nothing of it: Python reads this file first, by PYTHONPATH, at its start.

Nothing happens in a process that never imports torch, and nothing anywhere unless PITWALL_ATTACH_DIR names the folder
of requests. Then a thread looks there (profiling.attach.recorder). Whatever goes wrong here stays here. A sitecustomize
further along the path is read as before.

Every Python process that a trainer starts reads this, so it imports next to nothing until torch is there.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading

FOLDER = "PITWALL_ATTACH_DIR"
PACKAGE = "profiling"
RECORDER = "profiling.attach.recorder"
LOOK_SECONDS = 0.5


class _Noticing:
    """Notices that torch is looked for, and leaves it to the others to find it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return nothing."""
        if name == "torch" and self in sys.meta_path:
            import atexit
            import threading

            # a new list: who goes through the old one just now would pass over whoever stands behind this one
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
            leaving = threading.Event()
            thread = threading.Thread(target=_attach, args=(leaving,), name="pitwall", daemon=True)
            thread.start()
            atexit.register(_leave, leaving, thread)
        return None


def _leave(leaving: "threading.Event", thread: "threading.Thread") -> None:
    """Let the thread end that waits for torch: one that is just importing while Python leaves crashes the process."""
    leaving.set()
    if RECORDER not in sys.modules:
        thread.join(LOOK_SECONDS)


def _attach(leaving: "threading.Event") -> None:
    from pathlib import Path

    try:
        while getattr(sys.modules.get("torch"), "profiler", None) is None:  # it is being imported, or never will be
            if leaving.wait(LOOK_SECONDS):
                return
        _load_package()
        from profiling.attach import recorder

        recorder.serve_requests(Path(os.environ[FOLDER]))
    except Exception as error:  # the trainer's own work goes on whatever this was
        print(f"pitwall: this process cannot be recorded. {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _load_package() -> None:
    """Make this file's own package importable, and nothing of what lies beside it.

    Raises: ImportError if the trainer has another package of that name.
    """
    import importlib.util

    folder = os.path.realpath(os.path.join(__file__, "..", "..", ".."))  # noqa: PTH118 (pathlib is slow to import)
    there = sys.modules.get(PACKAGE)
    if there is not None:
        if folder not in [os.path.realpath(place) for place in getattr(there, "__path__", ())]:
            raise ImportError(f"the trainer has a package {PACKAGE} of its own")
        return
    init = os.path.join(folder, "__init__.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location(PACKAGE, init, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} holds no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


def _read_the_next() -> None:
    """Execute the sitecustomize that this file stands before, if there is one."""
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120
    places = [number for number, entry in enumerate(sys.path) if os.path.realpath(entry) == here]
    spec = PathFinder.find_spec("sitecustomize", sys.path[max(places, default=-1) + 1 :])
    if spec is not None and spec.loader is not None:
        import importlib.util

        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    if os.environ.get(FOLDER):
        sys.meta_path.insert(0, _Noticing())
    _read_the_next()
