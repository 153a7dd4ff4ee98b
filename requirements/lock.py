"""Write the lock files from the *.in files: `.venv/bin/python requirements/lock.py` (needs uv, of dev.lock).

Every package is hashed; no line names a host. All locks agree on versions, because all are cut from two resolutions:
one for the CPU build of vLLM (console, engine, dev), one for its CUDA build (gpu). What other trainers add to the
engine (trainers/*.in) is listed whole and pinned, because their own pins contradict it: only hashes are looked up.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
TORCH = "torch"
CUDA = re.compile(r"(nvidia|cuda)-")
# Published as source alone; pure Python, so building them needs no compiler. DeepSpeed's setup.py imports torch; antlr4
# comes with Hydra and math-verify.
SOURCE_ONLY = frozenset({"deepspeed", "antlr4-python3-runtime"})

Lock = dict[str, str]  # package name -> its lines


def resolve(source: str, preferred: Lock, *more: str) -> Lock:
    """Return the hashed requirements of an *.in file, in the preferred versions where they fit together."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.lock"  # uv keeps the versions that it finds in its output file
        output.write_text("".join(f"{block}\n" for block in preferred.values()))
        command = [sys.executable, "-m", "uv", "pip", "compile", str(FOLDER / source), "--output-file", str(output)]
        command += ["--quiet", "--no-header", "--no-annotate", "--generate-hashes", "--strip-extras"]
        command += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_31"]
        command += ["--excludes", str(FOLDER / "excludes.txt"), "--overrides", str(FOLDER / "overrides.txt"), *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return read(output)


def read(path: Path) -> Lock:
    """Return what a lock file holds; nothing if it is not there."""
    blocks = re.split(r"\n(?=\S)", path.read_text().strip()) if path.exists() else []
    return {block.partition("==")[0]: block for block in blocks if block}


def write(name: str, lock: Lock) -> None:
    """Write one lock file."""
    text = "".join(f"{lock[package]}\n" for package in sorted(lock))
    if "://" in text:
        raise SystemExit(f"{name} would name a host; change the *.in file that asks for a URL")
    (FOLDER / name).write_text(text)
    print(f"{name}: {len(lock)} packages")


def is_special(package: str) -> bool:
    """Return whether a package has a lock of its own: torch, what only its CUDA build needs, sources."""
    return package == TORCH or package in SOURCE_ONLY or CUDA.match(package) is not None


def cpu_torch_hashes(folder: Path) -> list[str]:
    """Return the hash of the CPU build of torch that pip would take here; none if it would take the standard one."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder]
    subprocess.run([*pip, "torch==2.13.0"], check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in folder.glob("*+cpu*.whl")]


def with_hashes(lines: str, more: list[str]) -> str:
    """Return the requirement, accepting these hashes too."""
    requirement, *hashes = lines.replace("\\\n", "").split()
    return " \\\n    ".join([requirement, *sorted({*hashes, *(f"--hash=sha256:{each}" for each in more)})])


def main() -> None:
    """Resolve and write all locks; versions stay as locked unless `--upgrade` is given or an *.in file forbids it."""
    earlier: Lock = {}
    if "--upgrade" not in sys.argv:
        for name in ("dev", "torch", "cuda", "source"):
            earlier |= read(FOLDER / f"{name}.lock")
    earlier_cpu = read(FOLDER / "torch-cpu.lock")  # hashes gather here: CPU builds are published in several places
    dev = resolve("dev.in", earlier)
    for name in ("console", "engine", "dev"):
        chosen = resolve(f"{name}.in", dev)
        changed = [package for package, block in chosen.items() if block != dev[package]]
        if changed:
            raise SystemExit(f"{name}.lock and dev.lock would disagree on {', '.join(changed)}")
        write(f"{name}.lock", {package: block for package, block in chosen.items() if not is_special(package)})
    write("installer.lock", {"uv": dev["uv"]})
    write("torch.lock", {TORCH: dev[TORCH]})
    with tempfile.TemporaryDirectory() as folder:
        cpu = with_hashes(earlier_cpu.get(TORCH, "torch==2.13.0+cpu"), cpu_torch_hashes(Path(folder)))
    write("torch-cpu.lock", {TORCH: cpu})
    write("cuda.lock", {package: block for package, block in dev.items() if CUDA.match(package)})
    write("source.lock", {package: block for package, block in dev.items() if package in SOURCE_ONLY})
    gpu = resolve("gpu.in", dev)
    write("gpu.lock", {package: block for package, block in gpu.items() if package not in SOURCE_ONLY})
    for source in sorted((FOLDER / "trainers").glob("*.in")):
        write(f"trainers/{source.stem}.lock", resolve(f"trainers/{source.name}", {}, "--no-deps"))


if __name__ == "__main__":
    main()
