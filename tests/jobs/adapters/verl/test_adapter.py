"""verl's commands: what is launched, and how commands and configs of people are read."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.adapters.adapter import ReadBack, adapter
from jobs.adapters.command_line.hydra import read as read_override
from jobs.adapters.launching import Launch
from jobs.adapters.verl.keys import keys_of
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers

RUN_DIR = Path("/srv/runs/r-1/a1")
VERSION = "0.9.1"
PASTED = r"""
set -x
MODEL=Qwen/Qwen2-7B-Instruct
export VLLM_ATTENTION_BACKEND=XFORMERS WANDB_API_KEY=0123456789abcdef

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=/data/gsm8k/train.parquet \
    data.val_files="['/data/gsm8k/test.parquet', '/data/math/test.parquet']" \
    data.train_batch_size=1024 data.max_prompt_length=512 data.max_response_length=1024 \
    data.filter_overlong_prompts=True data.truncation='error' \
    actor_rollout_ref.model.path=$MODEL \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    ++actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=40 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \
    actor_rollout_ref.actor.grad_clip=0.5 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n=5 \
    actor_rollout_ref.rollout.skip_rollout=True \
    algorithm.use_kl_in_reward=False \
    trainer.critic_warmup=0 \
    trainer.logger='["console","wandb"]' \
    trainer.project_name='verl_grpo_example_gsm8k' trainer.experiment_name='qwen2_7b_function_rm' \
    trainer.n_gpus_per_node=8 trainer.nnodes=1 trainer.save_freq=20 trainer.test_freq=5 trainer.total_epochs=15 \
    trainer.totl_training_steps=3 $@
"""


def command(raw: dict[str, Any], *, device: str = "cuda") -> Launch:
    spec = parse_spec({"model": {"kind": "path", "id": "/m"}, "trainer": {"name": "verl", "version": VERSION}} | raw)
    return adapter("verl").command(spec=spec, run_dir=RUN_DIR, python="/env/bin/python", device=device)


def settings(launch: Launch) -> dict[str, Any]:
    return {read_override(w).key: read_override(w).value for w in launch.argv if "=" in w and not w.startswith("-")}


def read(*words: str, version: str = VERSION) -> ReadBack:
    return adapter("verl").read_back(arguments=words, version=version)


def spec_of(*words: str) -> RunSpec:
    return parse_spec(read(*words).spec)


def reasons(found: ReadBack) -> dict[str, str]:
    return {each.option: each.why for each in (*found.left_out, *found.unread)}


def test_what_is_always_the_same_stands_in_every_command() -> None:
    launch = command({"algorithm": "grpo"})
    given = settings(launch)

    assert launch.argv[:3] == ("/env/bin/python", "-m", "verl.trainer.main_ppo")
    assert given["trainer.logger"] == ["console", "file"]
    assert given["trainer.default_local_dir"] == "/srv/runs/r-1/a1/checkpoints"
    assert given["hydra.run.dir"].startswith("/srv/runs/r-1/a1/")
    assert given["actor_rollout_ref.rollout.name"] == "vllm"
    assert given["actor_rollout_ref.actor.clip_ratio_low"] == given["actor_rollout_ref.actor.clip_ratio_high"] == 0.2
    assert given["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] > 0
    assert launch.env["VERL_FILE_LOGGER_PATH"] == "/srv/runs/r-1/a1/log/verl.jsonl"
    # The logger lives in a Ray actor, which does not see the driver's environment.
    key = "ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH"
    assert given[key] == launch.env["VERL_FILE_LOGGER_PATH"]


@pytest.mark.parametrize("algorithm", ["dapo", "sft"])
def test_other_loggers_stand_beside_ours_and_the_algorithm_is_known_without_the_projects_name(algorithm: str) -> None:
    others = {"logging.services": "wandb, tensorboard,wandb", "logging.project": "sums"}
    launch = command({"algorithm": algorithm, "knobs": others})
    given = settings(launch)

    assert given["trainer.logger"] == ["console", "file", "wandb", "tensorboard"]
    assert (given["trainer.project_name"], given["hydra.job.name"]) == ("sums", f"pitwall-{algorithm}")
    assert launch.env["TENSORBOARD_DIR"] == "/srv/runs/r-1/a1/tb"
    key = "ray_kwargs.ray_init.runtime_env.env_vars.TENSORBOARD_DIR"
    assert given.get(key) == (launch.env["TENSORBOARD_DIR"] if algorithm == "dapo" else None)
    again = spec_of(*launch.argv)
    assert again.algorithm == algorithm
    assert (again.knob("logging.services"), again.knob("logging.project")) == ("wandb,tensorboard", "sums")


def test_what_the_console_holds_is_named_where_it_is_written() -> None:
    given = settings(command({"algorithm": "grpo", "model": {"kind": "bundled"}}))

    assert given["actor_rollout_ref.model.path"] == "/srv/runs/r-1/a1/inputs/model"
    assert given["data.train_files"] == "/srv/runs/r-1/a1/inputs/train.parquet"
    assert given["data.val_files"] == "/srv/runs/r-1/a1/inputs/eval.parquet"
    assert "data.prompt_key" not in given


def test_without_held_out_data_nothing_is_evaluated_before_training() -> None:
    data = {"kind": "path", "id": "/d/train.parquet"}

    given = settings(command({"algorithm": "grpo", "data": data}))

    assert given["data.val_files"] == "/d/train.parquet"
    assert given["trainer.val_before_train"] is False


@pytest.mark.parametrize(
    ("knobs", "switched", "coefficient"),
    [
        ({"algorithm.kl_coefficient": 0.0}, None, None),
        (
            {"algorithm.kl_coefficient": 0.01, "algorithm.kl_in_loss": False},
            "algorithm.use_kl_in_reward",
            "algorithm.kl_ctrl.kl_coef",
        ),
        (
            {"algorithm.kl_coefficient": 0.01, "algorithm.kl_in_loss": True},
            "actor_rollout_ref.actor.use_kl_loss",
            "actor_rollout_ref.actor.kl_loss_coef",
        ),
    ],
)
def test_the_kl_term_is_switched_on_in_one_place(
    knobs: dict[str, Any], switched: str | None, coefficient: str | None
) -> None:
    given = settings(command({"algorithm": "grpo", "knobs": knobs}))

    switches = {"algorithm.use_kl_in_reward", "actor_rollout_ref.actor.use_kl_loss"} & set(given)
    assert switches == ({switched} if switched else set())
    assert coefficient is None or given[coefficient] == 0.01


def test_updates_are_told_in_prompts() -> None:
    knobs = {"rollout.prompts_per_step": 128, "train.updates_per_rollout": 4}

    assert settings(command({"algorithm": "grpo", "knobs": knobs}))["actor_rollout_ref.actor.ppo_mini_batch_size"] == 32


def test_a_critic_starts_from_the_policy() -> None:
    assert settings(command({"algorithm": "ppo"}))["critic.model.path"] == "/m"
    assert "critic.model.path" not in settings(command({"algorithm": "grpo"}))


@pytest.mark.parametrize(
    ("kind", "source"), [("math", ""), ("custom", "def reward(p, c, a):\n    return len(c) + 0.5\n")]
)
def test_a_reward_is_a_file_that_verl_can_call(kind: str, source: str) -> None:
    launch = command({"algorithm": "grpo", "reward": {"kind": kind, "source": source}})
    space: dict[str, Any] = {}
    exec(launch.files["inputs/reward.py"], space)

    score = space["compute_score"]("math", "#### 7", "7", extra_info={"index": 0}, reward_router_address=None)

    assert settings(launch)["reward.custom_reward_function.path"] == "/srv/runs/r-1/a1/inputs/reward.py"
    assert score == (1.0 if kind == "math" else 6.5)


def test_a_reward_model_is_served_and_a_file_is_named() -> None:
    served = settings(command({"algorithm": "grpo", "reward": {"kind": "model", "location": "/rm"}}))
    named = settings(command({"algorithm": "grpo", "reward": {"kind": "file", "location": "/r.py"}}))

    assert (served["reward.reward_model.enable"], served["reward.reward_model.model_path"]) == (True, "/rm")
    assert served["reward.reward_model.rollout.name"] == "vllm"
    assert named["reward.custom_reward_function.path"] == "/r.py"


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"data": {"kind": "hub", "id": "org/data"}}, "files, not from the hub"),
        ({"reward": {"kind": "url", "location": "http://h/score"}}, "asks no URL"),
    ],
)
def test_what_verl_cannot_do_is_refused_with_a_sentence(raw: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        command({"algorithm": "grpo"} | raw)


@pytest.mark.parametrize(
    ("nodes", "per_node", "words"),
    [
        (1, 1, ["-m", "verl.trainer.sft_trainer"]),
        (1, 4, ["-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--nproc-per-node=4", "-m"]),
        (2, 8, ["-m", "verl.trainer.sft_trainer_ray"]),
    ],
)
def test_fine_tuning_starts_its_processes_by_their_number(nodes: int, per_node: int, words: list[str]) -> None:
    knobs = {"placement.policy_nodes": nodes, "placement.policy_gpus_per_node": per_node}

    launch = command({"algorithm": "sft", "knobs": knobs})

    assert list(launch.argv[1 : 1 + len(words)]) == words
    assert ("MASTER_PORT" in launch.env) == (nodes * per_node == 1)
    assert "optim.lr" in settings(launch)


def test_fine_tuning_on_cpu_says_so() -> None:
    assert settings(command({"algorithm": "sft"}, device="cpu"))["trainer.device"] == "cpu"


def test_keys_of_the_other_engine_are_not_written() -> None:
    knobs = {"parallel.engine": "megatron", "parallel.tensor_parallel_size": 4, "train.seed": 7}
    given = settings(command({"algorithm": "grpo", "knobs": knobs}))

    assert given["model_engine"] == "megatron"
    assert given["actor_rollout_ref.actor.megatron.tensor_model_parallel_size"] == 4
    assert not [key for key in given if "fsdp_config" in key]


def test_a_pasted_command_becomes_a_spec() -> None:
    spec = spec_of(PASTED)

    assert (spec.algorithm, spec.name) == ("grpo", "qwen2_7b_function_rm")
    assert (spec.model.kind, spec.model.id) == ("hub", "Qwen/Qwen2-7B-Instruct")
    assert spec.data.id == "/data/gsm8k/train.parquet"
    assert spec.data.eval_id == "/data/gsm8k/test.parquet,/data/math/test.parquet"
    assert spec.knob("train.updates_per_rollout") == 4
    assert (spec.knob("algorithm.kl_coefficient"), spec.knob("algorithm.kl_in_loss")) == (0.001, True)
    assert spec.knob("algorithm.kl_estimator") == "k3"
    assert spec.knob("rollout.samples_per_prompt") == 5
    assert spec.knob("train.num_epochs") == 15
    assert (spec.knob("logging.services"), spec.knob("logging.project")) == ("wandb", "verl_grpo_example_gsm8k")


def test_what_a_command_does_not_say_is_as_verl_has_it() -> None:
    spec = spec_of("python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo")

    assert spec.knob("rollout.samples_per_prompt") == 1
    assert spec.knob("rollout.prompts_per_step") == 1024
    assert spec.knob("train.updates_per_rollout") == 4  # 1024 prompts, ppo_mini_batch_size 256
    assert spec.reward.location == "pkg://verl.utils.reward_score"


def test_what_stays_behind_is_named_with_the_reason_and_what_was_meant() -> None:
    answer = read(PASTED)
    found = reasons(answer)

    assert "clip_grad" in found["actor_rollout_ref.actor.grad_clip"]
    assert "Did you mean trainer.total_training_steps" in found["trainer.totl_training_steps"]
    assert set(found) == {
        "actor_rollout_ref.actor.grad_clip",
        "trainer.totl_training_steps",
        "data.truncation",
        "trainer.critic_warmup",
        "WANDB_API_KEY",
    }
    assert [each.option for each in answer.unread] == ["trainer.totl_training_steps"]
    assert list(answer.spec["environment"]["variables"]) == ["VLLM_ATTENTION_BACKEND"]
    assert answer.spec["environment"]["secrets"] == ["WANDB_API_KEY"]
    assert found["data.truncation"] == "It is the trainer's default, which holds anyway."
    assert {"data.train_files", "actor_rollout_ref.rollout.n", "algorithm.adv_estimator"} <= set(answer.understood)
    assert not set(answer.understood) & set(found)
    assert "0123456789abcdef" not in json.dumps(
        [str(read(PASTED).unread), str(read(PASTED).left_out), dict(read(PASTED).spec)]
    )


def test_a_secret_in_a_command_is_kept_nowhere() -> None:
    found = read(
        "python -m verl.trainer.main_ppo +ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN=hf_abc "
        "+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY='a b, c' ++wandb.api_key=[hf_abc"
    )

    assert "hf_abc" not in str(found)
    assert "a b, c" not in str(found)
    assert {unread.value for unread in found.unread} == {"…"}


def test_what_only_a_shell_knows_is_named() -> None:
    text = """
    train=$HOME/data/gsm8k/train.parquet
    python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files="['$train', '/b.parquet']" \\
        trainer.experiment_name=qwen_$(date +%m%d) actor_rollout_ref.actor.optim.lr=${LR} trainer.nnodes=2
    """
    found = read(text)

    assert {each.option for each in found.unread} == {
        "data.train_files",
        "trainer.experiment_name",
        "actor_rollout_ref.actor.optim.lr",
    }
    assert all("Only the shell" in each.why for each in found.unread)
    assert parse_spec(found.spec).data.id == "$HOME/data/gsm8k/train.parquet,/b.parquet"  # to be replaced in the form
    assert "name" not in found.spec


def test_keys_of_other_versions_are_translated() -> None:
    found = read(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=gae reward_model.enable=True "
        "reward_model.model.path=/rm custom_reward_function.path=/r.py "
        "actor_rollout_ref.rollout.update_weights_bucket_megabytes=512 "
        "critic.model.fsdp_config.param_offload=True reward_model.micro_batch_size_per_gpu=4"
    )
    spec = parse_spec(found.spec)
    changed = {each.option: each.now for each in found.translated}

    assert changed["custom_reward_function.path"] == "reward.custom_reward_function.path"
    assert changed["critic.model.fsdp_config.param_offload"] == "critic.fsdp.param_offload"
    assert spec.knob("memory.critic_param_offload") is True
    assert spec.knob("rollout.sync_bucket_mib") == 512
    assert spec.reward.location == "/r.py"
    assert "inference engine" in reasons(found)["reward_model.micro_batch_size_per_gpu"]


@pytest.mark.parametrize(
    "text",
    [
        "actor_rollout_ref.rollout.n=4 python -m verl.trainer.main_ppo",
        "CUDA_VISIBLE_DEVICES=0,1 python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=4",
        "env A=b python -u -m verl.trainer.main_ppo --config-name=ppo_trainer ++actor_rollout_ref.rollout.n=4",
        "cd verl && python verl/trainer/main_ppo.py +actor_rollout_ref.rollout.n=4 > log 2>&1",
        "ray job submit --runtime-env-json='{}' -- python -m verl.trainer.main_ppo 'actor_rollout_ref.rollout.n=4'",
        "ARGS=(actor_rollout_ref.rollout.n=4)\npython -m verl.trainer.main_ppo \"${ARGS[@]}\" 'hydra.run.dir=/x'",
    ],
)
def test_a_command_may_be_written_in_many_ways(text: str) -> None:
    expected = 1 if text.startswith("actor_rollout_ref") else 4

    assert spec_of(text).knob("rollout.samples_per_prompt") == expected


def test_words_may_be_split_already() -> None:
    text = "python -m verl.trainer.main_ppo data.val_files=\"['/a b.parquet']\" trainer.nnodes=2"

    assert spec_of(*shlex.split(text)).data.eval_id == "/a b.parquet"


def test_megatron_is_the_engine_of_its_own_config() -> None:
    text = "python -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' "
    found = read(text + "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=8")

    assert parse_spec(found.spec).knob("parallel.engine") == "megatron"
    assert parse_spec(found.spec).knob("parallel.tensor_parallel_size") == 8
    assert "folder" in reasons(found)["--config-path"]


def test_torchrun_says_how_many_processes_fine_tuning_has() -> None:
    spec = spec_of(
        "torchrun --nnodes=2 --nproc_per_node 4 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=Qwen/Qwen3-8B "
        "data.train_files=/d.parquet optim.lr=2e-5"
    )

    assert spec.algorithm == "sft"
    assert (spec.knob("placement.policy_nodes"), spec.knob("placement.policy_gpus_per_node")) == (2, 4)
    assert spec.model.id == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("words", "algorithm"),
    [
        ("algorithm.adv_estimator=gae", "ppo"),
        ("", "ppo"),
        ("algorithm.adv_estimator=rloo_vectorized", "rloo"),
        ("algorithm.adv_estimator=grpo actor_rollout_ref.actor.policy_loss.loss_mode=gspo", "gspo"),
        ("algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=False", "dr_grpo"),
        ("algorithm.adv_estimator=grpo algorithm.filter_groups.enable=True", "dapo"),
        ("algorithm.adv_estimator=reinforce_plus_plus", "reinforce_pp"),
    ],
)
def test_the_algorithm_is_told_by_what_verl_is_set_to(words: str, algorithm: str) -> None:
    assert spec_of(f"python -m verl.trainer.main_ppo {words}").algorithm == algorithm


def test_an_estimator_that_is_not_offered_is_named() -> None:
    assert (
        "opo" in reasons(read("python -m verl.trainer.main_ppo algorithm.adv_estimator=opo"))["algorithm.adv_estimator"]
    )


def test_a_yaml_text_of_settings_is_read_as_a_command_is() -> None:
    text = """
    algorithm: {adv_estimator: grpo}
    data:
      train_batch_size: 256
      max_response_length: ${data.max_prompt_length}
      max_prompt_length: 2048
    actor_rollout_ref:
      actor: {ppo_mini_batch_size: 64, optim: {betas: [0.9, 0.95]}}
      rollout: {name: sglang, n: 8}
    """
    spec = spec_of(text)

    assert spec.knob("train.updates_per_rollout") == 4
    assert spec.knob("rollout.backend") == "sglang"
    assert spec.knob("rollout.max_new_tokens") == 2048
    assert (spec.knob("optimizer.beta1"), spec.knob("optimizer.beta2")) == (0.9, 0.95)


def test_hydras_own_record_of_overrides_is_read() -> None:
    assert spec_of("- actor_rollout_ref.rollout.n=6\n- trainer.nnodes=2\n").knob("rollout.samples_per_prompt") == 6


def test_a_whole_config_needs_no_word_about_what_is_as_verl_has_it() -> None:
    whole: dict[str, Any] = {}
    for key, value in (keys_of("main_ppo", VERSION) | {"actor_rollout_ref.rollout.n": 3}).items():
        *parents, last = key.split(".")
        if "megatron" not in key:
            place = whole
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
    whole["actor_rollout_ref"]["rollout"]["name"] = "vllm"
    whole["trainer"]["logger"] = ["console"]

    found = read(yaml.safe_dump(whole))

    assert parse_spec(found.spec).knob("rollout.samples_per_prompt") == 3
    assert found.translated == ()
    assert found.unread == ()
    assert {each.option for each in found.left_out} <= {"trainer.project_name"}
    assert found.num_defaults > 500


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("deepspeed --module openrlhf.cli.train_sft --zero_stage 2", "not a command of verl"),
        ("python -m verl.trainer.main_eval data.path=/x", "evaluation without training"),
        ("just some words", "not a command of verl"),
        ("a: [1, 2", "no YAML text in line"),
        ("python -m verl.trainer.main_ppo 'a", "never closed"),
    ],
)
def test_what_is_no_command_of_verl_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read(text)


def test_batches_that_do_not_divide_are_named() -> None:
    found = read("python -m verl.trainer.main_ppo data.train_batch_size=100")

    assert "do not divide" in reasons(found)["actor_rollout_ref.actor.ppo_mini_batch_size"]


def test_the_newest_version_is_meant_where_none_is_named() -> None:
    assert read(PASTED, version="").spec["trainer"]["version"] == trainers()["verl"].versions[0]
