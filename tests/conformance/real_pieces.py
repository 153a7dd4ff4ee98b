"""Checks that OpenRLHF and DeepSpeed make after the command line, cut out of their own files (standard library only).

A function or a constructor is taken from the source as it stands, compiled alone and run on the arguments that the
parser left; nothing of the package is imported. What is computed here and not there is only what a cluster would give:
how many ranks a group has, and how many batches are scored.
"""

import __future__

import ast
import math
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROLES = ("actor", "ref", "critic", "reward")


class Anything:
    """Has every attribute, can be called and iterated over, and is always itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of a module is not to be made up
            raise AttributeError(name)
        return self

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Return itself."""
        return self

    def __iter__(self) -> Any:
        """Hold nothing."""
        return iter(())


def check(folder: Path, args: Any, *, is_rl: bool, processes: int, deepspeed: Path | None) -> None:
    """Run the checks that the real code makes of the arguments. Raises: what it raises."""
    strategy = _strategy(folder, args)
    if is_rl:
        _loss(folder, args)
        _penalties(folder, args)
        sizes = {role: _of(args, f"{role}.num_nodes") * _of(args, f"{role}.num_gpus_per_node") for role in ROLES}
        trained = [sizes["actor"], *([sizes["critic"]] if _of(args, "critic.model_name_or_path") else [])]
        scoring = [
            size
            for role, size in sizes.items()
            if role == "actor"
            or (role == "ref" and _of(args, "algo.kl.init_coef") > 0)
            or (role == "critic" and _of(args, "critic.model_name_or_path"))
            or (role == "reward" and not _of(args, "reward.remote_url"))
        ]
        for size in scoring:
            _scatter(folder, args, size)
    else:
        trained = [processes]
    if deepspeed is not None and not strategy.use_dynamic_batch:
        for size in trained:
            _divide(deepspeed, strategy, size)


FLAT = {  # of the arguments that are read here, what they are called where options are flat
    "algo.kl.init_coef": "init_kl_coef",
    "critic.model_name_or_path": "critic_pretrain",
    "reward.remote_url": "remote_rm_url",
    "rollout.batch_size": "rollout_batch_size",
    "rollout.micro_batch_size": "micro_rollout_batch_size",
    "rollout.n_samples_per_prompt": "n_samples_per_prompt",
    "ds.ring_attn_size": "ring_attn_size",
    "ds.tensor_parallel_size": "ds_tensor_parallel_size",
    "train.dynamic_batch_enable": "use_dynamic_batch",
} | {f"{role}.num_{what}": f"{role}_num_{what}" for role in ROLES for what in ("nodes", "gpus_per_node")}


def _of(args: Any, name: str) -> Any:
    if not hasattr(args, "ds"):
        return getattr(args, FLAT[name])
    for part in name.split("."):
        args = getattr(args, part)
    return args


def _strategy(folder: Path, args: Any) -> Any:
    """Make OpenRLHF's strategy: tensor parallelism asks for bf16 there."""
    names = {"deepspeed": SimpleNamespace(version="0.19.6"), "defaultdict": defaultdict}
    cls = cut_class(folder / "openrlhf/utils/deepspeed/deepspeed.py", "DeepspeedStrategy", ("__init__",), **names)
    return _function(folder / "openrlhf/utils/utils.py", "get_strategy", DeepspeedStrategy=cls)(args)


def _loss(folder: Path, args: Any) -> None:
    """Make the policy's loss, with the arguments that the actor gives it."""
    loss = cut_class(folder / "openrlhf/models/loss.py", "PolicyLoss", ("__init__",))
    tree = ast.parse((folder / "openrlhf/trainer/ray/ppo_actor.py").read_text(encoding="utf-8"))
    call = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "PolicyLoss"
    )
    eval(
        compile(ast.Expression(call), "ppo_actor.py", "eval"), {"PolicyLoss": loss, "self": SimpleNamespace(args=args)}
    )


def _penalties(folder: Path, args: Any) -> None:
    """Apply the penalties of length to no experience at all: their arguments are checked first."""
    file = folder / "openrlhf/trainer/ppo_utils/length_penalty.py"
    if not file.exists():
        return
    parts = ("apply_overlong_penalty", "apply_stop_properly_penalty")
    found = {name: _function(file, name) for name in parts}
    _function(file, "apply_length_penalties", logger=Anything(), **found)([], args)


def _scatter(folder: Path, args: Any, size: int) -> None:
    """Hand the scoring batches to a group of ranks. With batches by tokens there are at least as many as ranks."""
    if _of(args, "train.dynamic_batch_enable"):
        return
    samples = _of(args, "rollout.batch_size") * _of(args, "rollout.n_samples_per_prompt")
    batches = [None] * math.ceil(samples / _of(args, "rollout.micro_batch_size"))
    method = _function(folder / "openrlhf/trainer/ray/launcher.py", "async_run_method_batch", ray=Anything())
    ring = _of(args, "ds.ring_attn_size") * _of(args, "ds.tensor_parallel_size")
    group = SimpleNamespace(_actor_handlers=[Anything()] * size, duplicate_actors=ring)
    method(group, "forward", sequences=batches)


def _divide(deepspeed: Path, strategy: Any, size: int) -> None:
    """Let DeepSpeed divide the batch, as OpenRLHF's strategy gives it, among the ranks."""
    methods = ("_batch_assertion", "_set_batch_related_parameters", "_configure_train_batch_size")
    config = cut_class(deepspeed / "runtime/config.py", "DeepSpeedConfig", methods)()
    config.train_batch_size = strategy.train_batch_size * strategy.ring_attn_size * strategy.ds_tensor_parallel_size
    config.train_micro_batch_size_per_gpu = strategy.micro_train_batch_size
    config.gradient_accumulation_steps = None
    config.world_size = size
    config._configure_train_batch_size()


def _function(file: Path, name: str, **names: Any) -> Callable[..., Any]:
    found: dict[str, Any] = dict(names)
    exec(_cut(file, name), found)
    cut: Callable[..., Any] = found[name]
    return cut


def cut_class(file: Path, name: str, methods: tuple[str, ...], **names: Any) -> Any:
    """Return a class of a source file with only these methods; `names` are what they find around them."""
    found: dict[str, Any] = dict(names)
    exec(_cut(file, name, methods), found)
    return found[name]


@cache
def _cut(file: Path, name: str, methods: tuple[str, ...] = ()) -> Any:
    """Return a function, or a class with only these methods, compiled; imports inside are left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    node = next(
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name
    )
    node.decorator_list = []
    if isinstance(node, ast.ClassDef):
        node.bases, node.keywords = [], []
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        node.body = [part for part in node.body if isinstance(part, kinds) and part.name in methods]
    else:
        node.body = [part for part in node.body if not isinstance(part, (ast.Import, ast.ImportFrom))]
    module = ast.Module(body=[node], type_ignores=[])
    return compile(module, str(file), "exec", flags=__future__.annotations.compiler_flag)
