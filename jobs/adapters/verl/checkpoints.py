"""verl's checkpoints: `checkpoints/global_step_<N>`, whole once the file beside them names that step or a later one.

Reinforcement learning keeps `actor`, `critic` and `data.pt` in one, fine-tuning its shards and `data_<rank>.pt`.

Sources: verl trainer/ppo/ray_trainer.py (_save_checkpoint, _load_checkpoint), utils/checkpoint/checkpoint_handler.py,
model_merger (0.7.0 and 0.9.1 alike).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from jobs.adapters.checkpoints import NoCheckpoints, adapter_merge, fsdp_merge
from jobs.adapters.command_line.hydra import override
from jobs.adapters.launching import Launch
from jobs.adapters.verl.settings import ENGINE_KNOB, MEGATRON
from jobs.catalog.algorithm import is_in
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec

FOLDER = "checkpoints"
LATEST = "latest_checkpointed_iteration.txt"
_ADAPTERS, _MEGATRON_ADAPTERS, _ALPHA = "lora.rank", "lora.megatron_rank", "lora.alpha"
_KEYS = ("trainer.resume_mode", "trainer.resume_from_path")


class VerlCheckpoints(NoCheckpoints):
    """verl looks for no signal: a stop ends it where it is."""

    def saved(self, *, spec: RunSpec, run_dir: Path) -> Mapping[int, Path]:  # noqa: ARG002
        """See TrainerCheckpoints. The file beside them is written last."""
        try:
            latest = int((run_dir / FOLDER / LATEST).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        folders = {
            int(digits): folder
            for folder in (run_dir / FOLDER).glob("global_step_*")
            if (digits := folder.name.removeprefix("global_step_")).isdecimal() and len(digits) < 10
        }
        return {step: folder for step, folder in folders.items() if step <= latest and folder.is_dir()}

    def resumed(self, *, launch: Launch, spec: RunSpec, folder: Path) -> Launch:  # noqa: ARG002
        """See TrainerCheckpoints: verl reads a checkpoint where it lies."""
        argv = [word for word in launch.argv if not word.lstrip("+").startswith(tuple(f"{key}=" for key in _KEYS))]
        said = (override(key, value) for key, value in zip(_KEYS, ("resume_path", str(folder)), strict=True))
        return replace(launch, argv=(*argv, *said))

    def why_no_model(self, spec: RunSpec) -> str:
        """See TrainerCheckpoints. Megatron's merger wants an NVIDIA device and a port of its own, which a short job
        has no claim to; at the end of a run it has both."""
        if spec.values().get(_MEGATRON_ADAPTERS):
            return Sentence("verl's program leaves out Megatron's adapters: the model would be the untrained one.")
        if _is_megatron(spec):
            return Sentence("verl merges Megatron's checkpoints on a GPU alone: the last one, at the end of the run.")
        return ""

    def merge_command(self, *, spec: RunSpec, python: str, folder: Path, target: Path) -> tuple[str, ...]:
        """See TrainerCheckpoints. verl's merger of FSDP's shards writes bfloat16 whatever the run computed in, so that
        ours reads them; of adapters verl's makes a folder of their own beside the untrained model.
        """
        values = spec.values()
        if values.get(_MEGATRON_ADAPTERS):
            return ()
        shards = folder / "actor" if is_in(spec.algorithm, "rl") else folder
        if _is_megatron(spec):
            return _merger(python, "megatron", shards, target)
        if not values.get(_ADAPTERS):
            return fsdp_merge(spec=spec, python=python, folder=shards, model=shards / "huggingface", target=target)
        made = target / "merger"
        program = adapter_merge(spec=spec, python=python, folder=made / "lora_adapter", target=target)
        return (*program, f"--alpha={values[_ALPHA]}", "--made-by", *_merger(python, "fsdp", shards, made))


def _merger(python: str, backend: str, shards: Path, target: Path) -> tuple[str, ...]:
    options = ("--backend", backend, "--local_dir", str(shards), "--target_dir", str(target))
    return (python, "-m", "verl.model_merger", "merge", *options)


def _is_megatron(spec: RunSpec) -> bool:
    return spec.values().get(ENGINE_KNOB) == MEGATRON
