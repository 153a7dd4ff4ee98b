"""Install a set of locked packages into a virtual environment: `python3 requirements/install.py engine --venv .venv`.

Standard library only. uv installs, which pip installs first, or pip where uv cannot (docs/decisions/0021); either
checks every hash. `--no-deps`, because the locks are complete and leave torchvision and its kin out on purpose. Nothing
is compiled but bytecode. If the set, or a larger one, is there in these versions, nothing happens.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import preflight
from uv_tool import LAST_ONE, Uv, UvUnusable

FOLDER = Path(__file__).resolve().parent
TORCH = "torch==2.13.0"
# Each set and the larger ones that hold it.
INCLUDED_IN = {"console": ("engine", "dev", "gpu"), "engine": ("dev",), "dev": (), "gpu": ()}
STAMP = "pitwall.json"
WHEELS = ("--only-binary", ":all:")
LOCKED = ("--require-hashes", *WHEELS)


def wanted_stamp(chosen: str) -> dict[str, str]:
    """Return the digest of every lock that the set is made of, by file name."""
    names = [f"{chosen}.lock"]
    if chosen in ("engine", "dev", "gpu"):
        names.append("source.lock")
    if chosen in ("engine", "dev"):
        names += ["torch.lock", "torch-cpu.lock", "cuda.lock"]
    return {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in names}


def is_installed(venv: Path, chosen: str) -> bool:
    """Return whether the environment holds the set, or one that includes it, as the locks say now."""
    try:
        stamp = json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return False
    if not (venv / "bin" / "python").exists():
        return False
    return any(stamp == {"set": name, "locks": wanted_stamp(name)} for name in (chosen, *INCLUDED_IN[chosen]))


def pip(venv: Path, *arguments: str, is_allowed_to_fail: bool = False) -> bool:
    """Run pip install in the environment; return whether it worked."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "-qq", "--no-deps", *arguments]
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "DS_BUILD_OPS": "0"}
    env.pop("PIP_REQUIRE_VIRTUALENV", None)
    done = subprocess.run(command, env=env, check=False, capture_output=is_allowed_to_fail, text=True)
    if done.returncode and not is_allowed_to_fail:
        raise SystemExit(
            "pip could not install the packages; its message stands above. Run the same command again after."
        )
    return done.returncode == 0


class Packages:
    """Installs locks into one environment: with uv while that works, else with pip."""

    def __init__(self, venv: Path) -> None:
        self._venv = venv
        self._uv: Uv | None = None
        try:
            if not pip(venv, *LOCKED, "-r", str(FOLDER / "installer.lock"), is_allowed_to_fail=True):
                raise UvUnusable("the index has no uv for this machine")
            self._uv = Uv(venv)
        except UvUnusable as error:
            say(f"Installing with pip, which takes some minutes longer: {error}")

    def install(self, lock: str, *how: str) -> None:
        """Install one lock file; `how` are options that pip and uv share. Raises: SystemExit with a sentence."""
        say(f"Installing {lock}")
        arguments = ("--require-hashes", *how, "-r", str(FOLDER / lock))
        try:
            if self._uv is not None:
                self._uv.install(*arguments)
                if LAST_ONE in (FOLDER / lock).read_text():
                    self._uv.install("--reinstall-package", LAST_ONE, *arguments)
                return
        except UvUnusable as error:
            self._uv = None
            say(f"uv could not install {lock} ({error}); pip goes on")
        pip(self._venv, "--use-pep517", *arguments)

    def compile(self) -> None:
        """Write the bytecode of what there is, on all cores, so that no start has to; pip has done that already.

        A process may be forbidden to write it (PYTHONDONTWRITEBYTECODE, a read-only file system), and several that
        start at once would each do it.
        """
        if self._uv is None:
            return
        say("Compiling bytecode")
        python = str(self._venv / "bin" / "python")
        folder = next((self._venv / "lib").glob("python3*/site-packages"))
        # Files that are not for this Python are told as errors; nobody imports them.
        subprocess.run([python, "-m", "compileall", "-qq", "-j", "0", str(folder)], check=False)

    def tries(self, lock: str) -> bool:
        """Install one lock file, wheels only, if the index has what it names; return whether it had."""
        say(f"Installing {lock}")
        arguments = (*LOCKED, "-r", str(FOLDER / lock))
        if self._uv is not None:
            with contextlib.suppress(UvUnusable):
                self._uv.install(*arguments)
                return True
        return pip(self._venv, *arguments, is_allowed_to_fail=True)


def install_torch(venv: Path, packages: Packages) -> None:
    """Install torch by hash: its CPU build where the index has one, else the standard one.

    A CPU build that nobody hashed here is installed unchecked, and that is said.
    """
    if not offers_cpu_torch(venv):
        packages.install("torch.lock", *WHEELS)
    elif not packages.tries("torch-cpu.lock"):
        say(f"The index has a CPU build of {TORCH} that torch-cpu.lock has no hash of; installing it unchecked.")
        pip(venv, *WHEELS, TORCH)
    if has_cuda_torch(venv):
        say("This is torch's CUDA build, so its CUDA packages are needed even without a GPU.")
        packages.install("cuda.lock", *WHEELS)


def offers_cpu_torch(venv: Path) -> bool:
    """Return whether pip, left to itself, would take a CPU build: its version carries a local label."""
    command = [
        str(venv / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "-qq",
        "--dry-run",
        "--no-deps",
        "--ignore-installed",
    ]
    command += [*WHEELS, "--report", "-", TORCH]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The package index has no {TORCH} for this Python: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    return any("+cpu" in item["metadata"]["version"] for item in report["install"])


def has_cuda_torch(venv: Path) -> bool:
    """Return whether the installed torch was built for CUDA; asked of its files, because importing it may need them."""
    process = subprocess.run(
        [
            str(venv / "bin" / "python"),
            "-c",
            "import importlib.metadata as m; print(m.distribution('torch').locate_file(''))",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    version_file = Path(process.stdout.strip()) / "torch" / "version.py"
    return any(line.startswith("cuda") and "None" not in line for line in version_file.read_text().splitlines())


def install(venv: Path, chosen: str) -> None:
    """Make the environment and install the set into it."""
    if not (venv / "bin" / "python").exists():
        say(f"Making the virtual environment {venv}")
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    stamp = venv / STAMP
    stamp.unlink(missing_ok=True)
    packages = Packages(venv)
    packages.install(f"{chosen}.lock", *WHEELS)
    if chosen in ("engine", "dev"):
        install_torch(venv, packages)
    if chosen != "console":
        packages.compile()  # DeepSpeed's setup imports torch several times
        packages.install("source.lock", "--no-build-isolation")
    packages.compile()
    stamp.write_text(json.dumps({"set": chosen, "locks": wanted_stamp(chosen)}))


def say(text: str) -> None:
    """Tell what happens now; a first installation takes minutes."""
    print(f"pitwall: {text}", flush=True)


def main() -> int:
    """Check the machine and install; return the exit code."""
    parser = argparse.ArgumentParser(description="Install Pitwall's locked packages.")
    parser.add_argument("set", choices=sorted(INCLUDED_IN))
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--for-image", action="store_true", help="do not look at this machine: another one will run it")
    options = parser.parse_args()
    venv: Path = options.venv.absolute()
    done = is_installed(venv, options.set)
    if options.for_image:
        install(venv, options.set)
        return 0
    facts = preflight.read_facts(str(venv))
    for text in preflight.warnings(facts, is_installed=done):
        print(f"Note: {text}", file=sys.stderr)
    missing = preflight.problems(facts, chosen=options.set, is_installed=done)
    for text in missing:
        print(f"Missing: {text}", file=sys.stderr)
    if missing:
        return 1
    if not done:
        install(venv, options.set)
    return 0


if __name__ == "__main__":
    sys.exit(main())
