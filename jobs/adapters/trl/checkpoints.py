"""Transformers' checkpoints: `model/final/checkpoint-<optimizer step>`, whole once their `trainer_state.json` is there.

Told to (`--enable_jit_checkpoint`), it saves one and ends its training when it gets SIGTERM, at the end of the
optimizer step that is under way.

Sources: Transformers 5.19.0 trainer.py (_save_checkpoint), trainer_jit_checkpoint.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobs.adapters.checkpoints import NoCheckpoints, adapter_merge
from jobs.adapters.launching import Launch
from jobs.adapters.trl.command import OUTPUT
from jobs.adapters.trl.units import optimizer_steps
from jobs.catalog.spec.runspec import RunSpec

STATE = "trainer_state.json"
INCOMPLETE = "checkpoint-is-incomplete.txt"
RESUME = "--resume_from_checkpoint"
_ADAPTERS = "lora.rank"
_WITHOUT_STATES = "checkpoint.weights_only"
_OF_MODEL = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.py")


class TrlCheckpoints(NoCheckpoints):
    """One process saves for all, on the node of the run directory."""

    def saves_when_stopped(self, spec: RunSpec) -> bool:  # noqa: ARG002
        """See TrainerCheckpoints."""
        return True

    def saved(self, *, spec: RunSpec, run_dir: Path) -> Mapping[int, Path]:
        """See TrainerCheckpoints. One that lies between two rollouts is left out: its step is not over."""
        if spec.values().get(_WITHOUT_STATES):
            return {}
        each = optimizer_steps(spec.values())
        by_step = {}
        for folder in (run_dir / OUTPUT).glob("checkpoint-*"):
            digits = folder.name.removeprefix("checkpoint-")
            if not digits.isdecimal() or len(digits) > 9 or int(digits) % each:
                continue
            if (folder / STATE).is_file() and not (folder / INCOMPLETE).exists():
                by_step[int(digits) // each] = folder
        return by_step

    def why_no_model(self, spec: RunSpec) -> str:  # noqa: ARG002
        """See TrainerCheckpoints: of a reward model with adapters PEFT's folder holds the head as well."""
        return ""

    def model_files(self, *, spec: RunSpec, folder: Path) -> Sequence[Path]:  # noqa: ARG002
        """See TrainerCheckpoints: the model lies beside the training state, but where ZeRO-3 keeps it in shards."""
        if not (folder / "config.json").is_file() or not any(folder.glob("model*.safetensors")):
            return ()
        return sorted(path for pattern in _OF_MODEL for path in folder.glob(pattern) if path.name != STATE)

    def merge_command(self, *, spec: RunSpec, python: str, folder: Path, target: Path) -> tuple[str, ...]:
        """See TrainerCheckpoints: of adapters, which lie there alone."""
        has_adapters = bool(spec.values().get(_ADAPTERS))
        return adapter_merge(spec=spec, python=python, folder=folder, target=target) if has_adapters else ()

    def resumed(self, *, launch: Launch, spec: RunSpec, folder: Path) -> Launch:  # noqa: ARG002
        """See TrainerCheckpoints: Transformers reads a checkpoint where it lies."""
        argv = list(launch.argv)
        if RESUME in argv:
            del argv[argv.index(RESUME) : argv.index(RESUME) + 2]
        return replace(launch, argv=(*argv, RESUME, str(folder)))
