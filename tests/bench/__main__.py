"""`make bench`: every benchmark, one after the other, and all their numbers as one table at the end."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.stage import COLLECT, Result, print_table

BENCHMARKS = ("demo", "live_path", "storage", "compare", "form", "panel", "runner", "profiling", "timeline")


def main() -> None:
    """Run each benchmark in a process of its own; the exit code is 1 if one of them failed."""
    failed = []
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as folder:
        collected = Path(folder) / "results.jsonl"
        collected.touch()
        for name in BENCHMARKS:
            print(f"=== {name}", flush=True)
            env = {**os.environ, COLLECT: str(collected)}
            if subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], env=env, check=False).returncode:
                failed.append(name)
        rows = [json.loads(line) for line in collected.read_text().splitlines()]
    print("\n=== all", flush=True)
    os.environ.pop(COLLECT, None)
    print_table([Result(**{**row, "spread": tuple(row["spread"])}) for row in rows])
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
