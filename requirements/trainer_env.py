"""Make an environment for another trainer: `python3 requirements/trainer_env.py TRAINER`, or `make trainer-env`.

It stands in `.trainers/<trainer>-<version>` and shares the packages of the engine's environment, so only what the
trainer adds is fetched, by hash, from `trainers/<trainer>-<version>.lock`. Beside an engine without CUDA, the trainer
also gets what lets it train on CPU (`trainers/shims/<trainer>`). Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LOCKS = FOLDER / "trainers"
ROOT = FOLDER.parent / ".trainers"
STAMP = "pitwall.json"
SOURCE_ONLY = "antlr4-python3-runtime"  # pure Python, built with the engine's setuptools


def locked_versions() -> dict[str, list[str]]:
    """Return the versions of each trainer that there is a lock for, newest first."""
    versions: dict[str, list[str]] = {}
    for lock in LOCKS.glob("*.lock"):
        trainer, _, version = lock.stem.partition("-")
        versions.setdefault(trainer, []).append(version)
    return {
        name: sorted(versions[name], key=lambda v: [int(p) for p in v.split(".")], reverse=True) for name in versions
    }


def chosen(trainer: str, version: str) -> str:
    """Return the version to install. Raises: SystemExit with a sentence if there is no lock for it."""
    locks = locked_versions()
    if trainer not in locks:
        raise SystemExit(
            f"There is no trainer {trainer!r} to make an environment for. Known: {', '.join(sorted(locks))}."
        )
    if version and version not in locks[trainer]:
        raise SystemExit(
            f"There is no lock for {trainer} {version}. Locked: {', '.join(locks[trainer])}. Make an environment for "
            f"{version} yourself and name it in PITWALL_TRAINERS (docs/use/trainers.md)."
        )
    return version or locks[trainer][0]


def engine_packages(venv: Path) -> tuple[Path, bool]:
    """Return where the engine's packages are, and whether they are the CUDA set.

    Raises: SystemExit if there is no engine.
    """
    python = venv / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"There is no environment {venv} with the engine. Install it first: make install.")
    code = "import importlib.metadata as m; print(m.distribution('torch').locate_file(''))"
    done = subprocess.run([str(python), "-c", code], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The environment {venv} has no torch. Install the engine: make install.")
    try:
        chosen_set = json.loads((venv / STAMP).read_text()).get("set", "")
    except (OSError, ValueError):
        chosen_set = ""
    return Path(done.stdout.strip()).resolve(), chosen_set == "gpu"


def wanted_stamp(name: str, packages: Path, *, is_cuda: bool) -> dict[str, object]:
    """Return what makes an environment of that name up to date."""
    files = [LOCKS / f"{name}.lock"]
    if not is_cuda:
        files += sorted(p for p in shims_of(name).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    digests = {str(file.relative_to(LOCKS)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return {"name": name, "shares": str(packages), "files": digests}


def shims_of(name: str) -> Path:
    """Return the folder of what stands in for a GPU in the environment of that name; a trainer may need nothing."""
    return LOCKS / "shims" / name.partition("-")[0]


def make(name: str, venv: Path) -> Path:
    """Make the environment unless it is there and up to date; return its interpreter.

    Raises: SystemExit with a sentence.
    """
    packages, is_cuda = engine_packages(venv)
    target = ROOT / name
    python = target / "bin" / "python"
    stamp = target / STAMP
    wanted = wanted_stamp(name, packages, is_cuda=is_cuda)
    if python.exists() and stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return python
    say(f"Making {target}")
    shutil.rmtree(target, ignore_errors=True)
    engine_python = str(venv / "bin" / "python")
    subprocess.run([engine_python, "-m", "venv", "--without-pip", str(target)], check=True)
    own = next((target / "lib").glob("python*/site-packages"))
    (own / "pitwall_engine.pth").write_text(f"{packages}\n")
    install(engine_python, python, LOCKS / f"{name}.lock")
    if not is_cuda and shims_of(name).is_dir():
        shutil.copytree(shims_of(name), own, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    stamp.write_text(json.dumps(wanted))
    say(f"{name} is at {python}; `make up` finds it there")
    return python


def install(engine_python: str, python: Path, lock: Path) -> None:
    """Install one lock into the environment with the engine's pip."""
    command = [engine_python, "-m", "pip", "--python", str(python), "install", "-qq", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--no-binary", SOURCE_ONLY, "--no-build-isolation", "-r", str(lock)]
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    env.pop("PIP_REQUIRE_VIRTUALENV", None)
    if subprocess.run(command, env=env, check=False).returncode:
        raise SystemExit("pip could not install the packages; its message stands above. Then run this again.")


def say(text: str) -> None:
    """Tell what happens now."""
    print(f"pitwall: {text}", flush=True)


def main() -> int:
    """Make the environment and print its interpreter."""
    parser = argparse.ArgumentParser(description="Make an environment for another trainer.")
    parser.add_argument("trainer")
    parser.add_argument("version", nargs="?", default="")
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="the environment with the engine")
    options = parser.parse_args()
    version = chosen(options.trainer, options.version)
    print(make(f"{options.trainer}-{version}", options.venv.absolute()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
