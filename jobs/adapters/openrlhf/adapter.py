"""OpenRLHF: train_ppo_ray on Ray for reinforcement learning; train_sft, train_dpo and train_rm under torchrun."""

from collections.abc import Sequence
from pathlib import Path

from jobs.adapters.adapter import Adapter, Launch, LogReader, ReadBack, Spelling
from jobs.adapters.command_line.shell_reader import TOO_DEEP
from jobs.adapters.logs.flushing import environment_to_flush, files_to_flush
from jobs.adapters.openrlhf.logs import OpenRLHFLogs
from jobs.adapters.openrlhf.option_names import spellings
from jobs.adapters.openrlhf.options import files_of, trainer_words
from jobs.adapters.openrlhf.own_options import RL, program_of
from jobs.adapters.openrlhf.read_back import read_back
from jobs.adapters.recorded import RecordedFile
from jobs.catalog.runspec import RunSpec

_ENV = {
    "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
    "PYTHONFAULTHANDLER": "1",
}
_ON_CPU = {  # one process, which is its own launcher
    "DS_ACCELERATOR": "cpu",
    "RANK": "0",
    "LOCAL_RANK": "-1",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",  # a free one
}
_ROLES = {  # by class, of trainer/ray
    "PolicyModelActor": "policy",
    "CriticModelActor": "critic",
    "ReferenceModelActor": "reference",
    "RewardModelActor": "reward",
    "RolloutRayActor": "vllm",
    "LLMRayActor": "vllm",
    "LLMRayActorAsync": "vllm",
}
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nnodes=1")


class OpenRLHFAdapter:
    """Starts OpenRLHF's programs on options alone; no config file is written.

    NCCL_CUMEM_ENABLE is left alone: OpenRLHF sets it where the installed vLLM is old enough to want it, and breaks
    where it is set for a newer one.
    """

    def command(self, *, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
        """Return the command of the algorithm's program.

        Reinforcement learning joins the Ray cluster that the environment names (RAY_ADDRESS). The others are started by
        torchrun on one node; on CPU as one plain process. DeepSpeed's own launcher, told how many GPUs to use, passes
        over those that Ray has reserved (CUDA_VISIBLE_DEVICES) and takes the node's first ones.
        """
        program = program_of(spec.algorithm)
        words, launcher = trainer_words(spec, run_dir)
        module = f"openrlhf.cli.{program}"
        if program == RL:
            return Launch(argv=(python, "-m", module, *words), env=_ENV | {"RAY_DEDUP_LOGS": "0"}, files=files_of(spec))
        wanted = spec.hardware.device if spec.hardware.device != "auto" else device
        env = _ENV | environment_to_flush(run_dir)
        if wanted == "cpu":
            return Launch(argv=(python, "-m", module, *words), env=env | _ON_CPU, files=files_to_flush())
        return Launch(argv=(python, *_TORCHRUN, *launcher, "-m", module, *words), env=env, files=files_to_flush())

    def read_back(self, *, words: Sequence[str], version: str) -> ReadBack:
        """Return what a command of any known version says, flat or dotted. Raises: ValueError with a sentence."""
        try:
            return read_back(words, version)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None

    def spellings(self, *, version: str) -> Sequence[Spelling]:
        """Return the options of sections, of the launcher, of Pitwall, and those that are not offered."""
        return spellings(version)

    def reader(self, *, spec: RunSpec, run_dir: Path) -> LogReader:
        """Return who reads OpenRLHF's TensorBoard files and printed steps."""
        return OpenRLHFLogs(spec=spec, run_dir=run_dir)

    def role_of(self, *, spec: RunSpec, actor: str) -> str:
        """Return the role of an actor's class; in reinforcement learning only engines have processes beside actors."""
        if not actor:
            return "vllm" if program_of(spec.algorithm) == RL else "policy"
        return _ROLES.get(actor, "")

    def recorded(self, *, run_dir: Path) -> Sequence[RecordedFile]:  # noqa: ARG002
        """Return nothing: OpenRLHF has no profiler."""
        return ()


PLUGIN: Adapter = OpenRLHFAdapter()
