"""Write the digests of the images in docker-compose.yml: `make pin-images` (needs docker with buildx).

A version that is in the file stays; for a newer one write its number first. The digest is that of the list of all
platforms, so that it is the same image on every machine. Images that are built here have none.
"""

import re
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "docker-compose.yml"
_IMAGE = re.compile(r"^(?P<head> +image: )(?P<name>[\w./-]+):(?P<tag>[\w.-]+)(?:@sha256:[0-9a-f]{64})?$", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def pinned(text: str) -> str:
    """Return the file's text with the digest that each image of others has now. Raises: SystemExit with a sentence."""
    return _IMAGE.sub(lambda image: f"{image['head']}{image['name']}:{image['tag']}@{_digest(image)}", text)


def _digest(image: re.Match[str]) -> str:
    name = f"{image['name']}:{image['tag']}"
    command = ["docker", "buildx", "imagetools", "inspect", name, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        sys.exit("There is no docker here. Run this on a machine that has it.")
    digest = done.stdout.strip()
    if done.returncode or not _DIGEST.fullmatch(digest):
        sys.exit(f"docker does not know the digest of {name}: {(done.stderr or done.stdout).strip()}")
    print(f"{name}: {digest}")
    return digest


if __name__ == "__main__":
    FILE.write_text(pinned(FILE.read_text()))
