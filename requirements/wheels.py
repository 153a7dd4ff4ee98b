"""Fetch the wheels of frameworks.txt and unpack them: `.venv/bin/python requirements/wheels.py`. Standard library only.

pip checks every hash. The wheels are made for one Python and read by any: nothing of them is imported from where they
lie, and nothing is installed. What is there already is not fetched again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TARGET = FOLDER.parent / "build" / "wheels"
PLATFORM = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "none"]
PLATFORM += ["--platform", "manylinux1_x86_64", "--platform", "any"]


def pinned() -> dict[str, str]:
    """Return each line of frameworks.txt by `<package>-<version>`."""
    lines = (FOLDER / "frameworks.txt").read_text().splitlines()
    return {line.split()[0].replace("==", "-"): line for line in lines if line.strip() and not line.startswith("#")}


def unpacked(name: str) -> Path:
    """Return the folder of `<package>-<version>`, which holds the package; fetch it if it is not there.

    Raises: SystemExit with a sentence if pip cannot get it.
    """
    folder = TARGET / name
    if not folder.is_dir():
        TARGET.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TARGET) as draft:
            unpack(fetch(pinned()[name], Path(draft)), Path(draft) / "tree")
            try:
                (Path(draft) / "tree").rename(folder)
            except OSError:  # another process was faster
                if not folder.is_dir():
                    raise
    return folder


def fetch(line: str, folder: Path) -> Path:
    """Download one wheel by its hash and return its path."""
    listed = folder / "requirement.txt"
    listed.write_text(line)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-qq",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    command += [*PLATFORM, "--dest", str(folder), "-r", str(listed)]
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise SystemExit(f"The wheel {line.split()[0]} cannot be had, and the tests need it: {said}")
    return next(folder.glob("*.whl"))


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack a wheel as an installation would place its pure part."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for pure in folder.glob("*.data/purelib/*"):
        shutil.move(pure, folder / pure.name)


def main() -> None:
    """Fetch what is missing."""
    for name in pinned():
        unpacked(name)


if __name__ == "__main__":
    main()
