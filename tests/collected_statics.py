"""The static files as `collectstatic` leaves them, made once: consoles of tests serve them as a real one does.

Under names that say their content a browser asks for each of them once, not again with each page. They are kept in
build/ under a digest of the files and of what collects them.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.services import own_environment

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "statics"
FILES = ROOT / "static"
COLLECTS = (ROOT / "console" / "static_files.py", ROOT / "requirements" / "console.lock")


@cache
def collected_statics() -> Path:
    """Return the folder, for PITWALL_STATIC_ROOT."""
    KEPT.mkdir(parents=True, exist_ok=True)
    folder = KEPT / _digest()
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes while another makes it waits for that one
        if not folder.exists():
            for old in (path for path in KEPT.iterdir() if path.is_dir()):
                shutil.rmtree(old)
            _make(folder)
    return folder


def _make(folder: Path) -> None:
    new = folder.with_suffix(f".{os.getpid()}")
    environment = own_environment() | {"PITWALL_STATIC_ROOT": str(new)}
    command = [sys.executable, str(ROOT / "manage.py"), "collectstatic", "--noinput", "--verbosity=0"]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    new.rename(folder)


def _digest() -> str:
    whole = hashlib.sha256()
    for path in [*COLLECTS, *sorted(path for path in FILES.rglob("*") if path.is_file())]:
        whole.update(f"{path.relative_to(ROOT)}\n".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
