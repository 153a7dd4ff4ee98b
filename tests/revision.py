"""Earlier code of this repository, to be measured or judged beside that of now."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_revision(revision: str, folder: Path, *paths: str) -> Path:
    """Write the files of a revision, or those below some paths of it, into `folder`, which is made; return it.

    Raises: SystemExit if there is no such revision.
    """
    archive = subprocess.run(["git", "archive", revision, *paths], cwd=ROOT, check=False, capture_output=True)
    if archive.returncode:
        raise SystemExit(f"There is no revision {revision!r}: {archive.stderr.decode().strip()}")
    folder.mkdir(parents=True, exist_ok=True)
    # By the program: tarfile's own filter of what it writes came with Python 3.11.4.
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
