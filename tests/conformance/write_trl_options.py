"""Write jobs/adapters/trl/known_options/trl-*.json anew: `.venv/bin/python -m tests.conformance.write_trl_options`.

From the parsers of the wheels of requirements/frameworks.txt. Run it when a version of TRL is added, or one of
Transformers, whose TrainingArguments are a part of them.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.catalog.trainer import trainers
from tests.conformance.unpacked_wheels import unpacked

FOLDER = Path(__file__).resolve().parents[2] / "jobs" / "adapters" / "trl" / "known_options"


def text_of(options: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a version's file: by program each option with its default, without the second name of a switch."""
    tables = {
        program: {name: option["default"] for name, option in by_name.items() if not name.startswith("--no_")}
        for program, by_name in options.items()
    }
    return json.dumps(tables, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write every file."""
    script = Path(__file__).with_name("trl_parser.py")
    for version in trainers()["trl"].versions:
        command = [sys.executable, str(script), str(unpacked(f"trl-{version}"))]
        done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
        path = FOLDER / f"trl-{version}.json"
        path.write_text(text_of(json.loads(done.stdout.splitlines()[0])), encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
