"""Run the trainer's driver where no worker finds its files: `python -m tests.proofs.apart SEEN RUN_DIR`.

The driver gets a mount namespace in which RUN_DIR's parent lies at SEEN; the workers, started by Ray outside of it,
have another directory there. Needs root, or a kernel that lets users make namespaces.
"""

import os
import sys
from pathlib import Path

_SCRIPT = 'mount --bind "$1" "$2" && exec "$3" -m jobs.engine --device=cpu "$2/$4"'


def main() -> None:
    """Become the driver."""
    seen, run_dir = Path(sys.argv[1]), Path(sys.argv[2])
    seen.mkdir(parents=True, exist_ok=True)
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    arguments = [str(run_dir.parent), str(seen), sys.executable, run_dir.name]
    os.execvp("unshare", ["unshare", "--mount", *rights, "sh", "-c", _SCRIPT, "sh", *arguments])


if __name__ == "__main__":
    main()
