"""OpenRLHF's options that are no knobs: what a spec's sections say, what Pitwall sets itself, what it does not offer.

Together with the flags of the catalogue they are all options of every known version; a test holds them against the real
parsers. From DOTTED on, an option's first part names whose it is; before, options are flat.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jobs.adapters.adapter import OptionName
from jobs.catalog.algorithm import algorithms, is_in
from jobs.catalog.knob import knob_flags
from jobs.catalog.trainer import as_version

TRAINER = "openrlhf"
DOTTED = "0.10.2"
RL, SFT, DPO, RM = "train_ppo_ray", "train_sft", "train_dpo", "train_rm"
PROGRAMS = (RL, SFT, DPO, RM)
CLIP = ("algorithm.clip_ratio_low", "algorithm.clip_ratio_high")
PROCESSES = "placement.policy_gpus_per_node"
PER_NODE = ("--num_gpus", "--nproc_per_node", "--nproc-per-node")
NODES = ("--num_nodes", "--nnodes")
_SUPERVISED, _PAIRS = (SFT, DPO, RM), (DPO, RM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserOption:
    """An option of a section of the spec, or of Pitwall. `default` is the parser's; "" where it has none."""

    field: str
    programs: tuple[str, ...]
    dotted: str
    flat: str
    default: str = ""
    since: str = ""

    def name(self, version: str) -> str:
        """Return the option's name in a version."""
        return self.dotted if is_dotted(version) else self.flat


def is_dotted(version: str) -> bool:
    """Return True if the version's options have dots."""
    return as_version(version) >= as_version(DOTTED)


def _row(
    field: str, programs: tuple[str, ...], dotted: str, flat: str, default: str = "", since: str = ""
) -> ParserOption:
    return ParserOption(field=field, programs=programs, dotted=dotted, flat=flat, default=default, since=since)


SECTIONS = (
    _row("model", (RL,), "--actor.model_name_or_path", "--pretrain"),
    _row("model", _SUPERVISED, "--model.model_name_or_path", "--pretrain"),
    _row("data", (RL,), "--data.prompt_dataset", "--prompt_data"),
    _row("data", _SUPERVISED, "--data.dataset", "--dataset"),
    _row("split", (RL,), "--data.prompt_split", "--prompt_split", "train"),
    _row("split", _SUPERVISED, "--data.dataset_split", "--dataset_split", "train"),
    _row("prompt", (RL, SFT), "--data.input_key", "--input_key", "input"),
    _row("prompt", _PAIRS, "--data.prompt_key", "--prompt_key"),
    _row("answer", (RL,), "--data.label_key", "--label_key"),
    _row("response", (SFT,), "--data.output_key", "--output_key"),
    _row("chosen", _PAIRS, "--data.chosen_key", "--chosen_key", "chosen"),
    _row("rejected", _PAIRS, "--data.rejected_key", "--rejected_key", "rejected"),
    _row("eval", PROGRAMS, "--eval.dataset", "--eval_dataset"),
    _row("eval_split", (RL, SFT, RM), "--eval.split", "--eval_split", "train"),
    _row("eval_split", (DPO,), "--eval.split", "--eval_split", "test"),
    _row("reward_url", (RL,), "--reward.remote_url", "--remote_rm_url"),
    _row("reward_model", (RL,), "--reward.model_name_or_path", "--reward_pretrain"),
    _row("estimator", (RL,), "--algo.advantage.estimator", "--advantage_estimator", "gae"),
    _row("policy_loss", (RL,), "--actor.policy_loss_type", "--policy_loss_type", "ppo", "0.10.1"),
    _row("clip", (RL,), "--actor.eps_clip", "--eps_clip", "0.2"),
)
OURS = (
    _row("output", PROGRAMS, "--ckpt.output_dir", "--save_path"),
    _row("checkpoints", PROGRAMS, "--ckpt.path", "--ckpt_path"),
    _row("tensorboard", PROGRAMS, "--logger.tensorboard_dir", "--use_tensorboard"),
    _row("run_name", PROGRAMS, "--logger.wandb.run_name", "--wandb_run_name"),
)
WHY_OURS: Mapping[str, str] = {
    "output": "Pitwall keeps the trained model below the run directory.",
    "checkpoints": "Pitwall keeps checkpoints below the run directory.",
    "tensorboard": "Pitwall has its TensorBoard files below the run directory.",
}
"""By field of OURS: what is told to whoever sets it otherwise."""

WANDB_KEYS = ("--logger.wandb.key", "--use_wandb")

_WANDB = "With W&B on, this program writes no TensorBoard files, and Pitwall would see no curves. It is left out."
_LAUNCHER = "The launcher gives every process its own."
_DEEPSPEED = "DeepSpeed's Muon does not read it."
_NOTHING = "No code of OpenRLHF reads it."
_OLD = "OpenRLHF has dropped it; there is nothing in its place."
_NOT_OFFERED = (  # programs, dotted, flat, since, before, why
    (PROGRAMS, "--local_rank", "--local_rank", "", "", _LAUNCHER),
    (_SUPERVISED, *WANDB_KEYS, "", "", _WANDB),
    (_SUPERVISED, "--logger.wandb.org", "--wandb_org", "", "", _WANDB),
    (_SUPERVISED, "--logger.wandb.group", "--wandb_group", "", "", _WANDB),
    (_SUPERVISED, "--logger.wandb.project", "--wandb_project", "", "", _WANDB),
    *(
        (programs, f"--{prefix}muon.{name}", "", DOTTED, "", _DEEPSPEED)
        for programs, prefix in (((RL,), "actor."), ((RL,), "critic."), (_SUPERVISED, ""))
        for name in ("ns_steps", "nesterov", "no_nesterov")
    ),
    ((RL,), "", "--actor_init_on_gpu", "", DOTTED, _NOTHING),
    ((RL,), "", "--perf", "", DOTTED, _NOTHING),
    ((RL,), "", "--ptx_coef", "", DOTTED, _NOTHING),
    ((RL,), "", "--max_len", "", "0.10.1", "OpenRLHF 0.8 bounds prompt and response apart; say --prompt_max_len and "
     "--generate_max_len."),
    ((SFT,), "", "--train_split", "", DOTTED, "It was never read there; the split is --dataset_split."),
)  # fmt: skip
BEFORE: Mapping[str, str] = {  # options that were gone before the oldest version known here
    "--torch_compile": "OpenRLHF dropped it in 0.7; DeepSpeed's compiler is --ds.deepcompile.",
    "--pretrain_data": _OLD,
    "--pretrain_data_probs": _OLD,
    "--pretrain_split": _OLD,
    "--train_split": "OpenRLHF dropped it in 0.7; the split is --dataset_split.",
    "--use_kl_estimator_k3": "It is --kl_estimator k3 since OpenRLHF 0.6.",
}


_SPEC_FIELDS = {
    "model": ("model.id",),
    "data": ("data.id",),
    "split": ("data.split",),
    "prompt": ("data.prompt_column", "data.messages_column"),
    "answer": ("data.answer_column",),
    "response": ("data.response_column",),
    "chosen": ("data.chosen_column",),
    "rejected": ("data.rejected_column",),
    "eval": ("data.eval_id",),
    "eval_split": ("data.eval_split",),
    "reward_url": ("reward.location", "reward.kind"),
    "reward_model": ("reward.location", "reward.kind"),
    "estimator": ("algorithm",),
    "policy_loss": ("algorithm",),
    "clip": CLIP,
    "run_name": ("name",),
}
_INCLUDE = "--include"


def option(field: str, program: str) -> ParserOption | None:
    """Return the option of a section's field, or of what Pitwall sets; None where the program has none."""
    return next((o for o in (*SECTIONS, *OURS) if o.field == field and program in o.programs), None)


def not_offered(program: str, version: str) -> dict[str, str]:
    """Return the options of a version that are nobody's, with the reason."""
    reasons = {}
    for programs, dotted, flat, since, before, why in _NOT_OFFERED:
        name = dotted if is_dotted(version) else flat
        is_there = as_version(version) >= as_version(since) and (not before or as_version(version) < as_version(before))
        if name and program in programs and is_there:
            reasons[name] = why
    return reasons


def program_of(algorithm: str) -> str:
    """Return which program of openrlhf.cli trains an algorithm; "" if none does."""
    return {"sft": SFT, "dpo": DPO, "rm": RM}.get(algorithm, RL if is_in(algorithm, "rl") else "")


def algorithms_of(program: str) -> tuple[str, ...]:
    """Return the algorithms that a program trains."""
    return tuple(name for name in algorithms() if program_of(name) == program)


@cache
def knob_options(program: str, version: str) -> frozenset[str]:
    """Return the options of a version that are knobs."""
    names = set()
    for algorithm in algorithms_of(program):
        for _, flag in knob_flags(algorithm, TRAINER, version).values():
            if flag.form != "launcher":
                names |= set(flag.names)
    return frozenset(names)


@cache
def options_of(program: str, version: str) -> frozenset[str]:
    """Return every option that a program of a version has."""
    rows = [o for o in (*SECTIONS, *OURS) if program in o.programs and as_version(version) >= as_version(o.since)]
    return knob_options(program, version) | {o.name(version) for o in rows} | set(not_offered(program, version))


def option_names(*, version: str) -> Sequence[OptionName]:
    """Return every option of a version, and of versions before the oldest known one, that is no knob's flag."""
    return tuple(dict.fromkeys(_option_names(version)))


def _option_names(version: str) -> Iterator[OptionName]:
    for option in (*SECTIONS, *OURS):
        if as_version(version) >= as_version(option.since):
            yield OptionName(
                name=option.name(version),
                spec_fields=_SPEC_FIELDS.get(option.field, ()),
                why=WHY_OURS.get(option.field, ""),
            )
    for name in (*PER_NODE, _INCLUDE):
        yield OptionName(name=name, spec_fields=(PROCESSES,))
    for name in NODES:
        yield OptionName(name=name, why="OpenRLHF fine-tunes on one node here.")
    for program in PROGRAMS:
        for name, why in not_offered(program, version).items():
            yield OptionName(name=name, why=why)
    for name, why in BEFORE.items():
        yield OptionName(name=name, why=why)
