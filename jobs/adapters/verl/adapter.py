"""verl: its Hydra overrides for reinforcement learning (main_ppo) and supervised fine-tuning (sft_trainer)."""

from collections.abc import Sequence
from pathlib import Path

from jobs.adapters.adapter import Adapter, Launch, LogReader, ReadBack, Spelling
from jobs.adapters.command_line.hydra import override
from jobs.adapters.command_line.shell_reader import TOO_DEEP
from jobs.adapters.recorded import RecordedFile
from jobs.adapters.scoring import source_of
from jobs.adapters.verl.logs import VerlLogs
from jobs.adapters.verl.option_names import spellings
from jobs.adapters.verl.options import METRICS, REWARD_FILE, settings
from jobs.adapters.verl.profile import profiled
from jobs.adapters.verl.read_back import read_back
from jobs.adapters.verl.recorded import recorded_files
from jobs.adapters.verl.units import VERL_CONVERSIONS
from jobs.catalog.algorithm import is_in
from jobs.catalog.placement import group_size
from jobs.catalog.runspec import RunSpec

_WORKERS = ("Worker", "WorkerDict")  # of single_controller/ray: what trains, alone or several roles in one
_LOGGER = "VERL_FILE_LOGGER_PATH"

_SCORE = '''

def {name}(data_source, solution_str, ground_truth, extra_info=None, **given):
    """What verl calls for every completion."""
    return float(reward(str((extra_info or {{}}).get("prompt", "")), solution_str, str(ground_truth)))
'''


class VerlAdapter:
    """Starts verl's trainers on overrides alone; no config file is written."""

    def command(self, *, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
        """Return main_ppo's command for reinforcement learning, sft_trainer's else.

        Raises: ValueError with a sentence for what verl cannot do at all: data from a hub, rewards from a URL.
        """
        spec = profiled(spec)
        metrics = str(run_dir / METRICS)
        overrides = [override(key, value) for key, value in settings(spec, run_dir, VERL_CONVERSIONS)]
        env = {
            "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
            "PYTHONFAULTHANDLER": "1",
            "HYDRA_FULL_ERROR": "1",  # Hydra else hides where an error was raised
            "RAY_DEDUP_LOGS": "0",
            _LOGGER: metrics,
        }
        if is_in(spec.algorithm, "rl"):
            # The logger lives in a Ray actor, which sees the environment that ray.init is given, not the driver's.
            overrides.append(override(f"+ray_kwargs.ray_init.runtime_env.env_vars.{_LOGGER}", metrics))
            argv = (python, "-m", "verl.trainer.main_ppo", *overrides)
            return Launch(argv=argv, env=env, files=_files(spec))
        wanted = spec.hardware.device if spec.hardware.device != "auto" else device
        if wanted == "cpu":
            overrides.append(override("trainer.device", "cpu"))
            env["VERL_PLATFORM"] = "cpu"  # of the plugin in requirements/trainers/shims; verl has none of its own
        launcher, more = _launcher(spec)
        return Launch(argv=(python, *launcher, *overrides), env=env | more)

    def read_back(self, *, words: Sequence[str], version: str) -> ReadBack:
        """Return what a command, a YAML text of overrides or a whole config says. Raises: ValueError, a sentence."""
        try:
            return read_back(words, version, VERL_CONVERSIONS)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None

    def spellings(self, *, version: str) -> Sequence[Spelling]:
        """Return the keys of sections, of the launcher, of Pitwall, older names, and keys that do nothing."""
        return spellings(version)

    def reader(self, *, spec: RunSpec, run_dir: Path) -> LogReader:
        """Return who reads verl's JSON lines, or what it prints."""
        return VerlLogs(spec=spec, run_dir=run_dir)

    def role_of(self, *, spec: RunSpec, actor: str) -> str:
        """Return the role of an actor's class: roles that share their processes are the policy's."""
        if not actor:
            return "vllm" if is_in(spec.algorithm, "rl") else "policy"
        return "critic" if "Critic" in actor else "policy" if actor.endswith(_WORKERS) else "vllm"

    def recorded(self, *, run_dir: Path) -> Sequence[RecordedFile]:
        """Return what verl's profiler has written below the run directory."""
        return recorded_files(run_dir)


def _files(spec: RunSpec) -> dict[str, str]:
    if spec.reward.kind in ("file", "url", "model"):
        return {}
    source = source_of(spec.reward)
    name = str(spec.knobs["reward.function_name"].value) if "reward.function_name" in spec.knobs else "compute_score"
    return {REWARD_FILE: source if f"def {name}(" in source else source + _SCORE.format(name=name)}


def _launcher(spec: RunSpec) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return what starts the processes of supervised fine-tuning, and the environment that one process alone needs.

    Processes on one node are torchrun's; those on several are placed by Ray, which is there on every node already.
    """
    values = {knob_id: chosen.value for knob_id, chosen in spec.knobs.items()}
    processes = group_size(values, "policy")
    if processes <= 1:
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        return ("-m", "verl.trainer.sft_trainer"), alone
    if int(values.get("placement.policy_nodes") or 1) > 1:
        return ("-m", "verl.trainer.sft_trainer_ray"), {}
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nnodes=1", f"--nproc-per-node={processes}")
    return (*torchrun, "-m", "verl.trainer.sft_trainer"), {}


PLUGIN: Adapter = VerlAdapter()
