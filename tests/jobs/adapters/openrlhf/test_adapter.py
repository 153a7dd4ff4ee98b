"""OpenRLHF's commands: what is launched, and how commands of people are read."""

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import ReadBack, adapter
from jobs.adapters.launching import Launch
from jobs.adapters.openrlhf.options import PROGRAMS, options_of
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.openrlhf_parsers import RELEASES
from tests.conformance.openrlhf_specs import VERSIONS
from tests.conformance.real_pieces import Anything, cut_class
from tests.conformance.unpacked_wheels import unpacked

RUN_DIR = Path("/srv/runs/r-1/a1")
SECRET = "0123456789abcdef0123456789abcdef01234567"
FLAT = rf"""
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{{"working_dir": "/a", "env_vars": {{"NCCL_CUMEM_ENABLE": "0", "HF_TOKEN": "{SECRET}"}}}}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref_num_nodes 1 --ref_num_gpus_per_node 8 --critic_num_gpus_per_node 8 --actor_num_gpus_per_node 8 \
   --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --colocate_all_models --vllm_gpu_memory_utilization 0.6 \
   --pretrain OpenRLHF/Llama-3-8b-sft-mixture --reward_pretrain OpenRLHF/Llama-3-8b-rm-700k \
   --save_path /openrlhf/final --micro_train_batch_size 8 --train_batch_size 128 --micro_rollout_batch_size 16 \
   --rollout_batch_size 1024 --n_samples_per_prompt 1 --max_epochs 1 --prompt_max_len 1024 --generate_max_len 512 \
   --zero_stage 3 --bf16 --actor_learning_rate 5e-7 --init_kl_coef 0.01 --eps_clip 0.1 --flash_attn --perf \
   --prompt_data OpenRLHF/prompt-collection-v0.1 --input_key context_messages --apply_chat_template \
   --packing_samples --vllm_enable_sleep --use_wandb {SECRET} --kl_targt 2 2>&1 | tee log
"""


def command(raw: dict[str, Any], *, device: str = "cuda", version: str = "") -> Launch:
    spec = parse_spec(raw | {"trainer": {"name": "openrlhf", "version": version}})
    return adapter("openrlhf").command(spec=spec, run_dir=RUN_DIR, python="/env/bin/python", device=device)


def read(text: str, version: str = "") -> ReadBack:
    return adapter("openrlhf").read_back(arguments=[text], version=version)


def spec_of(text: str, version: str = "") -> RunSpec:
    return parse_spec(read(text, version).spec)


def reasons(found: ReadBack) -> dict[str, str]:
    return {each.option: each.why for each in (*found.left_out, *found.unread)}


def test_reinforcement_learning_is_one_process_that_joins_ray() -> None:
    launch = command({"algorithm": "grpo", "knobs": {"rollout.samples_per_prompt": 16}})

    assert launch.argv[:3] == ("/env/bin/python", "-m", "openrlhf.cli.train_ppo_ray")
    assert "--algo.advantage.estimator group_norm" in " ".join(launch.argv)
    assert "--rollout.n_samples_per_prompt 16" in " ".join(launch.argv)
    assert "NCCL_CUMEM_ENABLE" not in launch.env


def test_fine_tuning_is_started_by_torchrun_on_the_gpus_that_ray_has_reserved() -> None:
    launch = command({"algorithm": "sft", "knobs": {"placement.policy_gpus_per_node": 4}})

    words = list(launch.argv)
    assert words[1:4] == ["-m", "torch.distributed.run", "--standalone"]
    assert words[words.index("--nproc-per-node") + 1] == "4"
    assert words[words.index("openrlhf.cli.train_sft") - 1] == "-m"
    assert "CUDA_VISIBLE_DEVICES" not in launch.env


def test_on_cpu_fine_tuning_is_one_plain_process() -> None:
    launch = command({"algorithm": "dpo"}, device="cpu")

    assert launch.argv[:3] == ("/env/bin/python", "-m", "openrlhf.cli.train_dpo")
    assert launch.env["DS_ACCELERATOR"] == "cpu"
    assert (launch.env["RANK"], launch.env["LOCAL_RANK"], launch.env["WORLD_SIZE"]) == ("0", "-1", "1")
    assert launch.env["MASTER_PORT"] == "0"


def test_a_key_never_stands_in_a_command() -> None:
    launch = command({"algorithm": "ppo", "knobs": {"wandb.enable": True}})

    assert launch.argv[launch.argv.index("--logger.wandb.key") + 1] == "WANDB_API_KEY"


@pytest.mark.parametrize("version", ["0.10.1", "0.11.2"])
def test_a_reward_is_carried_as_a_file_that_openrlhf_itself_loads_and_calls(version: str, tmp_path: Path) -> None:
    source = "def reward(prompt, completion, answer):\n    return 2.0 if completion.strip() == answer else -1.0\n"
    launch = command({"algorithm": "grpo", "reward": {"kind": "custom", "source": source}}, version=version)
    ((name, text),) = launch.files.items()
    file = tmp_path / Path(name).name
    file.write_text(text)

    executor = cut_class(
        unpacked(f"openrlhf-{RELEASES[version]}") / "openrlhf" / "utils" / "agent.py",
        "SingleTurnAgentExecutor",
        ("__init__", "_fetch_rewards_via_func"),
        logger=Anything(),
        cycle=itertools.cycle,
        asyncio=asyncio,
    )([str(file)])
    assert str(RUN_DIR / name) in launch.argv
    queries = ["<|im_start|>2 + 2 =<|im_end|> 4<|im_end|>", "2 + 2 =5</s>"]
    found = asyncio.run(executor._fetch_rewards_via_func(queries, ["2 + 2 =", "2 + 2 ="], ["<|im_end|> 4", None]))

    assert [float(each["rewards"]) for each in found] == [2.0, -1.0]
    assert [float(each["scores"]) for each in found] == [2.0, -1.0]


def test_a_pasted_flat_command_is_understood_and_what_is_left_behind_is_named() -> None:
    found = read(FLAT)
    spec = parse_spec(found.spec)

    assert (spec.trainer.version, spec.algorithm) == ("0.8.6", "ppo")
    assert (spec.model.kind, spec.model.id) == ("hub", "OpenRLHF/Llama-3-8b-sft-mixture")
    assert (spec.reward.kind, spec.reward.location) == ("model", "OpenRLHF/Llama-3-8b-rm-700k")
    assert (spec.data.id, spec.data.prompt_column, spec.data.answer_column) == (
        "OpenRLHF/prompt-collection-v0.1",
        "context_messages",
        "",
    )
    assert spec.knob("train.updates_per_rollout") == 8
    assert (spec.knob("rollout.max_prompt_tokens"), spec.knob("rollout.max_new_tokens")) == (1024, 512)
    assert (spec.knob("algorithm.clip_ratio_low"), spec.knob("algorithm.clip_ratio_high")) == (0.1, 0.1)
    assert (spec.knob("memory.precision"), spec.knob("kernels.attention")) == ("bfloat16", "flash_attention_2")
    assert spec.knob("wandb.enable") is True
    why = reasons(found)
    assert "Did you mean --kl_target?" in why["--kl_targt"]
    assert "0.16" in why["NCCL_CUMEM_ENABLE"]
    assert set(why) == {"--save_path", "--perf", "--kl_targt", "NCCL_CUMEM_ENABLE", "HF_TOKEN"}


def test_a_secret_goes_nowhere() -> None:
    assert SECRET not in str(read(FLAT)) + str(read(FLAT, "0.11.2"))
    assert SECRET not in str(read(f"python -m openrlhf.cli.train_sft --wandb {SECRET} --use_wandb={SECRET}"))


def test_a_flat_command_becomes_a_spec_of_the_dotted_version() -> None:
    found = read(FLAT, "0.11.2")
    spec = parse_spec(found.spec)
    translated = {each.option: each.now for each in found.translated}

    assert spec.trainer.version == "0.11.2"
    assert translated["--colocate_all_models"] == "--train.colocate_all"
    assert translated["--bf16"] == "--ds.param_dtype"
    assert translated["--generate_max_len"] == "--rollout.max_new_tokens"
    assert translated["--eps_clip"] == "--actor.eps_clip_low_high"
    assert (spec.knob("rollout.max_prompt_tokens"), spec.knob("rollout.max_new_tokens")) == (1024, 512)
    # What the command leaves out means what its own version would have done.
    assert spec.knob("train.score_micro_batch_size") == 16
    assert spec.knob("eval.samples_per_prompt") == 4


def test_defaults_are_those_of_the_version_that_the_command_was_written_for() -> None:
    text = "openrlhf.cli.train_ppo_ray --pretrain a/b --prompt_data c/d --reward_pretrain e/f"

    assert spec_of(f"{text} --generate_max_len 9", "0.11.2").knob("train.micro_batch_size") == 4
    assert spec_of(f"{text} --max_new_tokens 9", "0.11.2").knob("train.micro_batch_size") == 1


@pytest.mark.parametrize(
    ("options", "algorithm"),
    [
        ("", "ppo"),
        ("--algo.advantage.estimator group_norm", "grpo"),
        ("--algo.advantage.estimator group_norm --algo.dynamic_filtering_enable", "dapo"),
        ("--algo.advantage.estimator group_norm --actor.policy_loss_type gspo", "gspo"),
        ("--algo.advantage.estimator dr_grpo", "dr_grpo"),
        ("--algo.advantage.estimator rloo", "rloo"),
        ("--algo.advantage.estimator reinforce", "reinforce_pp"),
        ("--algo.advantage.estimator reinforce_baseline", "reinforce_pp_baseline"),
    ],
)
def test_the_options_make_the_algorithm(options: str, algorithm: str) -> None:
    found = read(f"openrlhf.cli.train_ppo_ray --actor.model_name_or_path a/b --data.prompt_dataset c/d {options}")

    assert found.spec["algorithm"] == algorithm


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--adam.lrr 1", "Did you mean --adam.lr?"),
        ("--colocate_all_models", "no such option for openrlhf.cli.train_sft"),
        ("--ds.zero_stage 7", "Use one of 0, 1, 2, 3"),
        ("--adam.lr fast", "Use a number"),
        ("--train.batch_size 12.5", "is not a whole number"),
        ("--adam.betas 0.9", "It takes two values"),
        ("--ds.packing_samples true", "It takes no value"),
        ("--adam.lr 1 2", "It takes one value, not 2"),
        ("--torch_compile", "--ds.deepcompile"),
        ("--train_split train", "--dataset_split"),
        ("--model.model_name_or_path $MODEL", "Only the shell"),
        ("--adam.lr $(cat lr)", "Only the shell"),
        ("--logger.wandb.project x", "no TensorBoard"),
        ("--muon.ns_steps 3", "does not read it"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_reason(option: str, why: str) -> None:
    text = f"deepspeed --module openrlhf.cli.train_sft --data.dataset a/b --model.model_name_or_path c/d {option}"

    found = read(text, "0.11.2")

    assert why in reasons(found)[option.split()[0]]


def test_what_pitwall_sets_itself_is_left_out_and_is_not_what_was_not_understood() -> None:
    found = read(
        "WANDB_API_KEY=abc deepspeed --module openrlhf.cli.train_sft --dataset a/b --pretrain c/d --save_path ./ckpt "
        "--use_tensorboard ./board --ckpt_path ./c --local_rank 3 --use_wandb abc --learning_rate 1e-5 "
        "--learning_rates 3"
    )

    assert [each.option for each in found.left_out] == [
        *("--save_path", "--ckpt_path", "--use_tensorboard", "--local_rank", "--use_wandb", "WANDB_API_KEY")
    ]
    assert [each.option for each in found.unread] == ["--learning_rates"]
    assert found.understood == ("--dataset", "--pretrain", "--learning_rate")


def test_the_beginning_of_an_option_is_taken_for_it_as_argparse_does_and_said() -> None:
    found = read("openrlhf.cli.train_sft --model.model a/b --data.dataset c/d --data.output r --data.max_l 4096")

    assert parse_spec(found.spec).knob("train.max_sequence_tokens") == 4096
    assert {each.option: each.now for each in found.translated}["--data.max_l"] == "--data.max_len"


def test_a_length_of_prompt_and_answer_together_is_halved_and_said() -> None:
    found = read(
        "openrlhf.cli.train_ppo_ray --actor.model_name_or_path a/b --data.prompt_dataset c --data.max_len 4097"
    )
    knobs = found.spec["knobs"]

    assert (knobs["rollout.max_new_tokens"], knobs["rollout.max_prompt_tokens"]) == (2048, 2049)
    assert "half of it" in reasons(found)["--data.max_len"]


@pytest.mark.parametrize(
    ("launcher", "processes"),
    [
        ("deepspeed --num_gpus 4 --module", 4),
        ("deepspeed --include localhost:0,2,3 --module", 3),
        ("torchrun --standalone --nproc_per_node=2 -m", 2),
        ("python -m", 1),
    ],
)
def test_the_launcher_says_how_many_processes(launcher: str, processes: int) -> None:
    spec = spec_of(f"{launcher} openrlhf.cli.train_rm --model.model_name_or_path a/b --data.dataset c/d")

    assert spec.knob("placement.policy_gpus_per_node") == processes


@pytest.mark.parametrize(
    ("kind", "level", "mode"),
    [("tis", "token", "clip"), ("icepop", "token", "mask"), ("seq-mask-tis", "sequence", "mask")],
)
def test_corrections_of_importance_weights_change_their_names_between_versions(
    kind: str, level: str, mode: str
) -> None:
    text = "openrlhf.cli.train_ppo_ray --pretrain a/b --prompt_data c/d --enable_vllm_is_correction"
    text += f" --vllm_is_correction_type {kind}"
    new = parse_spec(read(text, "0.11.2").spec)
    dotted = adapter("openrlhf").command(spec=new, run_dir=RUN_DIR, python="python", device="cuda").argv
    old = parse_spec(adapter("openrlhf").read_back(arguments=dotted, version="0.10.1").spec)

    assert (new.knob("algorithm.correction"), new.knob("algorithm.correction_mode")) == (level, mode)
    assert spec_of(text).knob("algorithm.correction_type") == kind
    assert old.knob("algorithm.correction_type") == kind


def test_of_a_script_that_does_more_the_training_is_read() -> None:
    text = """
    read -r -d '' first <<EOF
    openrlhf.cli.batch_inference --eval_task rm
    EOF
    python -m $first
    python -m openrlhf.cli.batch_inference --eval_task generate_vllm
    ROOT=$(cd .. && pwd)
    for seed in 1 2; do
      torchrun --nproc-per-node ${GPUS:-8} -m openrlhf.cli.train_dpo \\
        --pretrain a/b --dataset $ROOT/pairs.jsonl --seed $seed
    done
    """
    found = read(text)

    assert found.spec["algorithm"] == "dpo"
    assert found.spec["knobs"]["placement.policy_gpus_per_node"] == 8
    assert "Only the shell" in reasons(found)["--dataset"]
    assert "Only the shell" in reasons(found)["--seed"]


def test_pretraining_on_plain_text_needs_no_answers() -> None:
    spec = spec_of("deepspeed ../train_sft.py --pretrain a/b --dataset c/d --input_key text --pretrain_mode")

    assert (spec.data.prompt_column, spec.data.response_column) == ("text", "")
    assert spec.knob("train.pretrain_mode") is True


def test_several_nodes_of_fine_tuning_are_named() -> None:
    found = read("deepspeed --num_nodes 2 --num_gpus 8 --module openrlhf.cli.train_sft --pretrain a/b --dataset c/d")

    assert reasons(found)["--num_nodes"] == "Here it is started on one node."


def test_options_alone_are_enough_to_know_the_program() -> None:
    found = read("--model.model_name_or_path a/b --data.dataset c/d --model.beta 0.2")

    assert found.spec["algorithm"] == "dpo"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("python train.py --lr 1", "starts none of OpenRLHF's trainers"),
        ("python -m openrlhf.cli.train_kto --dataset x", "train_kto is gone"),
        ("python -m openrlhf.cli.serve_rm --port 5000", "trains nothing"),
        ("openrlhf.cli.train_sft --model 'x", "never closed"),
        ("", "starts none of OpenRLHF's trainers"),
    ],
)
def test_what_is_no_command_of_openrlhf_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(text)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"model": {"kind": "hub", "id": "a/b", "revision": "v2"}}, "model.revision"),
        ({"data": {"kind": "path", "id": "/srv/x.jsonl", "system_prompt": "Be brief."}}, "data.system_prompt"),
        ({"algorithm": "sft", "data": {"messages_column": "messages"}}, "knobs.data.apply_chat_template"),
    ],
)
def test_what_openrlhf_has_no_word_for_is_refused_and_not_dropped(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecInvalid) as caught:
        command(raw)

    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("program", PROGRAMS)
def test_any_options_are_read_or_named_and_no_value_gets_through_that_a_knob_does_not_take(program: str) -> None:
    rng = random.Random(20261120)
    names = sorted({name for version in VERSIONS for name in options_of(program, version)} | {"--foo", "--x.y", "--"})
    values = [
        "1",
        "0",
        "-1",
        "true",
        "a b",
        "",
        "1e8",
        "inf",
        "nan",
        "k3",
        "gspo",
        "-1e-3",
        "$X",
        "/a/b.py",
        "x/y",
        "{}",
    ]
    for _ in range(100):
        words = ["python", "-m", f"openrlhf.cli.{program}"]
        for _ in range(rng.randint(0, 20)):
            words += [rng.choice(names), *rng.choices(values, k=rng.choice([0, 1, 1, 1, 2, 3]))]

        found = adapter("openrlhf").read_back(arguments=words, version=rng.choice(["", *VERSIONS]))
        problems = []
        try:
            parse_spec(found.spec)
        except SpecInvalid as error:
            problems = [p.field for p in error.problems if p.field not in ("knobs.data.apply_chat_template",)]

        assert all(unread.why.endswith((".", "?")) for unread in found.unread)
        assert [field for field in problems if field.startswith("knobs.")] == []
