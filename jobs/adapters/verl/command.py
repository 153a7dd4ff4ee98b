"""verl's command: Hydra overrides alone, for reinforcement learning (main_ppo) and fine-tuning (sft_trainer)."""

from pathlib import Path

from jobs.adapters.command_line.hydra import override
from jobs.adapters.command_line.services import services_of
from jobs.adapters.launching import Launch
from jobs.adapters.logs.tensorboard import FOLDER
from jobs.adapters.scoring import source_of
from jobs.adapters.verl.settings import METRICS, REWARD_FILE, settings
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.own_profile import THEIRS, own_profile
from jobs.catalog.spec.placement import group_size
from jobs.catalog.spec.runspec import KnobValue, RunSpec
from jobs.catalog.value import Value

_LOGGER = "VERL_FILE_LOGGER_PATH"
_ENV_VARS = "ray_kwargs.ray_init.runtime_env.env_vars"
_DISCRETE = {"torch": "profiling.torch_discrete", "msprof": "profiling.npu_discrete"}

_SCORE = '''

def {name}(data_source, solution_str, ground_truth, extra_info=None, **given):
    """What verl calls for every completion."""
    return float(reward(str((extra_info or {{}}).get("prompt", "")), solution_str, str(ground_truth)))
'''


def command(*, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
    """Return main_ppo's command for reinforcement learning, sft_trainer's else.

    Raises: ValueError with a sentence for what verl cannot do at all: data from a hub, rewards from a URL.
    """
    spec = with_profile(spec)
    metrics = str(run_dir / METRICS)
    overrides = [override(key, value) for key, value in settings(spec, run_dir)]
    env = {
        "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
        "PYTHONFAULTHANDLER": "1",
        "HYDRA_FULL_ERROR": "1",  # Hydra else hides where an error was raised
        "RAY_DEDUP_LOGS": "0",
    }
    loggers = {_LOGGER: metrics}
    if "tensorboard" in services_of(spec):
        loggers["TENSORBOARD_DIR"] = str(run_dir / FOLDER)  # which is handed over with the run's files
    env |= loggers
    if is_in(spec.algorithm, "rl"):
        # The loggers live in a Ray actor, which sees the environment that ray.init is given, not the driver's.
        overrides += [override(f"+{_ENV_VARS}.{name}", path) for name, path in loggers.items()]
        argv = (python, "-m", "verl.trainer.main_ppo", *overrides)
        return Launch(argv=argv, env=env, files=_files(spec))
    wanted = spec.hardware.device if spec.hardware.device != "auto" else device
    if wanted == "cpu":
        overrides.append(override("trainer.device", "cpu"))
        env["VERL_PLATFORM"] = "cpu"  # of the plugin in requirements/trainers/shims; verl has none of its own
    launcher, more = _launcher(spec)
    return Launch(argv=(python, *launcher, *overrides), env=env | more)


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


def with_profile(spec: RunSpec) -> RunSpec:
    """Return the spec with its profile as knobs; the same spec if it has none that verl's own profiler records.

    In a worker that several roles share verl reads the actor's switch alone; rollout engines are recorded by
    themselves, and only stage by stage (`discrete`).
    """
    wanted = own_profile(spec)
    if spec.profile.what == "none" or wanted is None:
        return spec
    roles = wanted.roles or tuple(spec.workers)
    steps = range(wanted.first_step, wanted.first_step + wanted.num_steps)
    is_rollout = "vllm" in roles and wanted.tool in _DISCRETE
    said: dict[str, Value] = {
        "profiling.tool": THEIRS[wanted.tool],
        "profiling.steps": ",".join(map(str, steps)),
        "profiling.enable": True,
        "profiling.first_step": steps[0],
        "profiling.last_step": steps[-1],
        "profiling.policy": "policy" in roles,
        "profiling.reference": "reference" in roles,
        "profiling.critic": "critic" in roles,
        "profiling.rollout": "on" if is_rollout else "off",
        "profiling.all_ranks": not wanted.ranks,
        "profiling.ranks": ",".join(map(str, wanted.ranks)),
        "profiling.collect_results": True,
    }
    if is_rollout:
        said[_DISCRETE[wanted.tool]] = True
    contents = "profiling.torch_contents"
    if wanted.tool == "torch" and spec.profile.what == "memory" and contents in spec.knobs and not spec.knob(contents):
        said[contents] = "cpu,cuda,memory"
    own_knobs = {knob: KnobValue(value=value, origin="you") for knob, value in said.items() if knob in spec.knobs}
    return spec.model_copy(update={"knobs": {**spec.knobs, **own_knobs}})
