"""A SQLite file as `manage.py migrate` leaves a fresh one, made once: a dozen processes of `make test` start with it.

It is kept in build/ under a digest of the code that makes it and the locked versions, so it is never out of date. That
a console migrates by itself is in tests/journeys/test_compose.py and test_two_nodes.py, which start with nothing.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.services import own_environment

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "migrated"
CODE = ("jobs", "console")  # models, migrations, what follows a migration, settings
LOCK = ROOT / "requirements" / "console.lock"
NAME = "pitwall.sqlite3"  # in a console's data directory


@cache
def migrated_database() -> Path:
    """Return the file: every table, every row that a migration writes, and nothing else."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{_digest()}.sqlite3"
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes while another makes it waits for that one
        if not path.exists():
            for old in KEPT.glob("*.sqlite3"):
                old.unlink()
            _make(path)
    return path


def put_database(data_dir: Path) -> None:
    """Put a copy where a console with this data directory looks for its database."""
    shutil.copy(migrated_database(), data_dir / NAME)


def _make(path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pw-migrated-") as folder:
        environment = own_environment() | {"PITWALL_DATA_DIR": folder}
        command = [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity=0"]
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
        new = path.with_suffix(f".{os.getpid()}")
        shutil.copy(Path(folder) / NAME, new)
        new.rename(path)


def _digest() -> str:
    whole = hashlib.sha256(LOCK.read_bytes())
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        whole.update(f"{path.relative_to(ROOT)}\n".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
