"""verl's own checks of a config: `<python that has verl> real_verl.py MODEL_FOLDER`, a JSON list of overrides per line.

Answers a JSON object per line: `accepted`, else `kind` (the exception) and `text`. Run is what main_ppo runs before it
places a worker (the real composition, `validate_config`, the dataclasses of every part, the trainer's constructor and
its resource pools), the policy loss and the rollout correction on four tokens, and those asserts of the workers that
read the config alone, cut out of their files as they stand. MODEL_FOLDER stands in for models, because their config is
read. No Ray is started, nothing is placed.
"""

import ast
import contextlib
import importlib.util
import io
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DATACLASSES = (
    "actor_rollout_ref.rollout",
    "actor_rollout_ref.actor",
    "actor_rollout_ref.model",
    "actor_rollout_ref.actor.profiler",
    "actor_rollout_ref.rollout.profiler",
    "algorithm",
    "critic",
    "distillation",
    "skip",
)
WORKERS = "workers/engine_workers.py"


def check(overrides: list[str], model: str) -> None:
    """Run verl's checks; raises what they raise."""
    from hydra import compose
    from omegaconf import OmegaConf, open_dict
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = compose("ppo_trainer", overrides=overrides)
    with open_dict(config):
        config.actor_rollout_ref.model.path = config.critic.model.path = model
        config.actor_rollout_ref.model.tokenizer_path = config.critic.model.tokenizer_path = None
        config.actor_rollout_ref.model.external_lib = config.critic.model.external_lib = None
        config.trainer.checkpoint_callback_class = None  # code of the user, which is not here
        config.trainer.v1.sampler.custom_sampler.path = None
        if config.distillation.enabled:
            config.distillation.teacher_models.teacher_model.model_path = model
    OmegaConf.resolve(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    is_asked = {"critic": need_critic(config), "distillation": config.distillation.enabled}
    for name in DATACLASSES:
        part = OmegaConf.select(config, name)
        if is_asked.get(name, True) and part is not None and "_target_" in part:
            omega_conf_to_dataclass(part)
    _workers(config)
    _trainer(config)
    _losses(config)


def _trainer(config: Any) -> None:
    """Make the trainer as main_ppo does, its pools, and what it asks of checkpoints and batches."""
    from verl.trainer.ppo.v1 import get_trainer_cls

    cls = get_trainer_cls(config.trainer.v1.trainer_mode)
    trainer = cls(config)
    if config.trainer.resume_mode == "resume_path":
        with contextlib.suppress(FileNotFoundError, AttributeError, OSError):  # the folder is not here; its name is
            trainer._load_checkpoint()
    first = [node for node in _function("trainer/ppo/v1/trainer_base.py", "step").body if isinstance(node, ast.Assert)]
    _run(
        first[:1], {"train_batch_size": config.data.train_batch_size, "self": trainer}, "trainer/ppo/v1/trainer_base.py"
    )
    trainer._init_resource_pool_mgr()
    is_whole = config.trainer.v1.trainer_mode == "sync" and not config.algorithm.filter_groups.enable
    if is_whole and not config.trainer.v1.sampler.sync_refill_failed_groups:  # the others fetch prompts one by one
        prompts = config.data.train_batch_size
        values = {"num_prompts": prompts, "gen_batch_size": config.data.gen_batch_size or prompts}
        _piece("trainer/ppo/v1/trainer_base.py", "must be a positive multiple of gen_batch_size", values)


def _losses(config: Any) -> None:
    """Call the chosen loss on four tokens, and the correction of the mismatch between trainer and rollout."""
    import torch
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
    from verl.utils.config import omega_conf_to_dataclass

    core_algos.get_adv_estimator_fn(config.algorithm.adv_estimator)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    old, new, mask = torch.zeros(2, 2), torch.full((2, 2), 0.1), torch.ones(2, 2)
    actor.global_batch_info.update({"dp_size": 1, "batch_num_tokens": 4, "global_batch_size": 2})
    core_algos.get_policy_loss_fn(actor.policy_loss.loss_mode)(
        old_log_prob=old,
        log_prob=new,
        advantages=torch.tensor([[1.0, -1.0], [0.5, -0.5]]),
        response_mask=mask,
        loss_agg_mode=actor.loss_agg_mode,
        config=actor,
    )
    given = config.algorithm.rollout_correction
    if given.rollout_is is not None or given.rollout_rs is not None:
        compute_rollout_correction_and_rejection_mask(
            old_log_prob=new,
            rollout_log_prob=old,
            response_mask=mask,
            rollout_is=given.rollout_is,
            rollout_is_threshold=given.rollout_is_threshold,
            rollout_is_batch_normalize=given.rollout_is_batch_normalize,
            rollout_rs=given.rollout_rs,
            rollout_rs_threshold=given.rollout_rs_threshold,
        )


def _workers(config: Any) -> None:
    """Run the asserts of the workers that read the config alone."""
    parts, rollout = config.actor_rollout_ref, config.actor_rollout_ref.rollout
    world = config.trainer.nnodes * config.trainer.n_gpus_per_node
    me = SimpleNamespace(config=parts, world_size=world)
    _piece(WORKERS, "use_dynamic_bsz == self.config.rollout.log_prob_use_dynamic_bsz", {"self": me})
    for name in ("log_prob_micro_batch_size_per_gpu", "ppo_micro_batch_size_per_gpu"):
        if not parts.actor.use_dynamic_bsz:
            _piece(WORKERS, f"{name} is not None", {"self": me})
    size = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
    if rollout.nnodes == 0:
        _piece(WORKERS, "self.world_size % infer_world_size", {"self": me, "infer_world_size": size})
    pool = rollout.n_gpus_per_node if rollout.nnodes else config.trainer.n_gpus_per_node
    replica = SimpleNamespace(world_size=size, gpus_per_replica_node=min(pool, size))
    _piece("workers/rollout/replica.py", "self.world_size % self.gpus_per_replica_node", {"self": replica})
    if parts.actor.strategy != "megatron":
        split = max(parts.actor.fsdp_config.ulysses_sequence_parallel_size, parts.actor.ulysses_sequence_parallel_size)
        engine = SimpleNamespace(get_data_parallel_size=lambda: world // split)
        _piece(
            WORKERS,
            "mini_batch_size % self.engine.get_data_parallel_size()",
            {"self": SimpleNamespace(engine=engine), "mini_batch_size": parts.actor.ppo_mini_batch_size * rollout.n},
        )
        me = SimpleNamespace(
            engine_config=SimpleNamespace(ulysses_sequence_parallel_size=split),
            use_remove_padding=parts.model.use_remove_padding,
        )
        _piece("workers/engine/fsdp/transformer_impl.py", "you must enable `use_remove_padding`", {"self": me})
    logger = SimpleNamespace(enabled=lambda: False)
    me = SimpleNamespace(rollout_config=rollout)
    values = {"self": me, "RLInsightLogger": logger, "needs_metrics": rollout.prometheus.enable}
    _piece("workers/rollout/llm_server.py", "Metrics monitoring requires", values)


def _piece(file: str, text: str, values: Mapping[str, Any]) -> None:
    """Run the innermost assert of a file, or the innermost `if` that raises, whose source holds a text."""
    _run([_statement(file, text)], values, file)


@cache
def _statement(file: str, text: str) -> ast.stmt:
    source = (_package() / file).read_text(encoding="utf-8")
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Assert, ast.If)) and text in (ast.get_source_segment(source, node) or "")
    ]
    if not found:
        raise LookupError(f"{file} holds no check with {text!r} any more")
    return max(found, key=lambda node: node.lineno)


@cache
def _function(file: str, name: str) -> ast.FunctionDef:
    tree = ast.parse((_package() / file).read_text(encoding="utf-8"))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)


def _run(statements: list[Any], values: Mapping[str, Any], file: str) -> None:
    module = ast.fix_missing_locations(ast.Module(body=statements, type_ignores=[]))
    exec(compile(module, file, "exec"), dict(values))


@cache
def _package() -> Path:
    spec = importlib.util.find_spec("verl")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def answer(overrides: list[str], model: str) -> dict[str, Any]:
    """Return what verl makes of the overrides."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            check(overrides, model)
        except Exception as error:  # whatever its own checks raise is the answer
            return {"accepted": False, "kind": type(error).__name__, "text": str(error)}
    return {"accepted": True, "kind": "", "text": ""}


def main() -> None:
    """Answer until the input ends."""
    from hydra import initialize_config_dir

    out, folder = sys.stdout, _package() / "trainer" / "config"
    with contextlib.redirect_stdout(io.StringIO()), initialize_config_dir(config_dir=str(folder), version_base=None):
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line), sys.argv[1])), file=out, flush=True)


if __name__ == "__main__":
    main()
