"""The built-in trainer's checkpoints: `checkpoints/step-<N>`, of which a program of its own makes models.

Parameter by parameter, whatever ranks have saved them (jobs/engine/checkpoints/merge.py).
"""

import json
from math import prod
from pathlib import Path

from jobs.adapters.checkpoints import NoCheckpoints
from jobs.catalog.spec.runspec import RunSpec

_WEIGHT_BYTES = 4  # as they are saved, whatever they are loaded as


class NativeCheckpoints(NoCheckpoints):
    """It announces them, and goes on from one, by itself."""

    def why_no_model(self, spec: RunSpec) -> str:  # noqa: ARG002
        """See TrainerCheckpoints."""
        return ""

    def merge_command(self, *, spec: RunSpec, python: str, folder: Path, target: Path) -> tuple[str, ...]:  # noqa: ARG002
        """See TrainerCheckpoints."""
        return (python, "-m", "jobs.engine.checkpoints.merge", str(folder), str(target))

    def merge_bytes(self, *, spec: RunSpec, folder: Path) -> int:
        """See TrainerCheckpoints: the weights alone, of which a checkpoint has the optimizer's states besides.

        A base under adapters is in no checkpoint: it is not counted.
        """
        try:
            roles = json.loads((folder / "checkpoint.json").read_text("utf-8"))["roles"]
            return _WEIGHT_BYTES * sum(prod(shape) for shape in roles["policy"]["parameters"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # its program says what is wrong with it
            return super().merge_bytes(spec=spec, folder=folder)
