"""TRL's commands: what is launched, and how commands and configurations of people are read."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import ReadBack, adapter
from jobs.adapters.inputs import inputs_of
from jobs.adapters.launching import Launch
from jobs.adapters.trl.options import SCRIPTS
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers

RUN_DIR = Path("/srv/runs/r-1/a1")
SECRET = "hf_0123456789abcdef"
DOCUMENTED = rf"""
# from the documentation of TRL
export HF_TOKEN={SECRET}
accelerate launch --config_file trl/accelerate_configs/zero3.yaml --num_processes 4 \
    trl/scripts/dpo.py \
    --dataset_name trl-lib/ultrafeedback_binarized \
    --model_name_or_path Qwen/Qwen2-0.5B-Instruct \
    --learning_rate 5.0e-7 --num_train_epochs 1 --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 --max_steps 1000 \
    --eval_strategy steps --eval_steps 50 --output_dir Qwen2-0.5B-DPO --no_remove_unused_columns \
    --use_peft --lora_r 32 --lora_alpha 16 --report_to wandb --beta 0.2 --lern_rate 3
"""
CONFIG = """
# a configuration of `trl grpo --config`
model_name_or_path: Qwen/Qwen3-4B
dataset_name: trl-lib/DeepMath-103K
reward_funcs:
  - accuracy_reward
per-device-train-batch-size: 4
gradient_accumulation_steps: 8
num_generations: 16
max_completion_length: 2048
learning_rate: 1.0e-6
use_vllm: true
vllm_mode: colocate
gradient_checkpointing: true
loss_type: dr_grpo
scale_rewards: none
logging_steps: 5
push_to_hub: true
env:
  WANDB_API_KEY: abcdef
"""


def command(raw: dict[str, Any], *, device: str = "cuda") -> Launch:
    spec = parse_spec(raw | {"trainer": {"name": "trl"}})
    return adapter("trl").command(spec=spec, run_dir=RUN_DIR, python="/env/bin/python", device=device)


def read(text: str) -> ReadBack:
    return adapter("trl").read_back(arguments=[text], version="")


def spec_of(text: str) -> RunSpec:
    return parse_spec(read(text).spec)


def reasons(result: ReadBack) -> dict[str, str]:
    return {each.option: each.why for each in (*result.left_out, *result.unread)}


def test_on_gpus_torchrun_starts_a_process_for_each_on_one_node() -> None:
    launch = command({"algorithm": "grpo", "knobs": {"placement.policy_gpus_per_node": 4}})

    words = list(launch.argv)
    assert words[1:4] == ["-m", "torch.distributed.run", "--standalone"]
    assert words[words.index("--nproc-per-node") + 1] == "4"
    assert words[words.index("trl.scripts.grpo") - 1] == "-m"
    assert launch.env["TENSORBOARD_LOGGING_DIR"] == "/srv/runs/r-1/a1/tb"


def test_one_process_on_cpu_is_a_group_of_one_so_that_it_can_be_recorded() -> None:
    alone = command({"algorithm": "sft"}, device="cpu")
    several = command({"algorithm": "sft", "knobs": {"placement.policy_gpus_per_node": 2}}, device="cpu")

    assert (alone.env["LOCAL_RANK"], alone.env["WORLD_SIZE"], alone.env["MASTER_PORT"]) == ("0", "1", "0")
    assert "LOCAL_RANK" not in several.env  # torchrun says it


def test_ray_gives_the_gpus_to_the_command_itself_in_reinforcement_learning_too() -> None:
    assert not [name for name in SCRIPTS if trainers()["trl"].uses_ray(name)]


def test_on_cpu_it_is_one_plain_process() -> None:
    launch = command({"algorithm": "sft"}, device="cpu")

    assert launch.argv[:3] == ("/env/bin/python", "-m", "trl.scripts.sft")
    assert launch.argv[-2:] == ("--use_cpu", "true")


def test_a_rollout_and_its_updates_become_samples_and_micro_batches() -> None:
    knobs = {
        "placement.policy_gpus_per_node": 2,
        "rollout.prompts_per_step": 8,
        "rollout.samples_per_prompt": 4,
        "train.micro_batch_size": 4,
        "train.updates_per_rollout": 2,
        "train.epochs_per_rollout": 3,
        "train.num_steps": 10,
    }

    text = " ".join(command({"algorithm": "grpo", "knobs": knobs}).argv)

    assert "--generation_batch_size 32" in text
    assert "--gradient_accumulation_steps 2" in text
    assert "--max_steps 60" in text, "a step of a run has six optimizer steps"


def test_a_reward_is_a_function_that_scores_texts_and_conversations() -> None:
    launch = command({"algorithm": "grpo", "reward": {"kind": "exact_match"}})
    path, source = next(reversed(launch.files.items()))
    names: dict[str, Any] = {}
    exec(source, names)

    score = names["exact_match_reward"]
    talk = [[{"role": "assistant", "content": " Four "}]]
    assert path == "inputs/reward_exact_match.py"
    assert "inputs.reward_exact_match.exact_match_reward" in launch.argv
    assert score(prompts=["2+2"], completions=["four"], answer=["four"], completion_ids=[[1]]) == [1.0]
    assert score(prompts=[[{"role": "user", "content": "2+2"}]], completions=talk, answer=["four"]) == [1.0]
    assert score(prompts=["2+2"], completions=["5"]) == [0.0]


def test_the_answer_s_column_is_the_one_of_the_data() -> None:
    data = {"kind": "hub", "id": "a/b", "answer_column": "solution"}
    launch = command({"algorithm": "grpo", "data": data, "reward": {"kind": "exact_match"}})
    names: dict[str, Any] = {}
    exec(launch.files["inputs/reward_exact_match.py"], names)

    assert names["exact_match_reward"](prompts=["x"], completions=["4"], solution=["4"]) == [1.0]


def test_a_stage_of_zero_is_a_file_of_deepspeed_whose_name_tells_it() -> None:
    launch = command({"algorithm": "sft", "knobs": {"memory.zero_stage": "3"}})

    config = json.loads(launch.files["inputs/zero3.json"])
    assert config["zero_optimization"] == {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
    assert config["train_batch_size"] == "auto"
    assert launch.argv[launch.argv.index("--deepspeed") + 1] == "inputs/zero3.json"


def test_a_file_of_data_is_named_in_a_configuration() -> None:
    data = {"kind": "path", "id": "/srv/data/a: #1.parquet", "messages_column": "messages"}
    launch = command({"algorithm": "sft", "data": data})

    row = {"path": "parquet", "data_files": "/srv/data/a: #1.parquet", "split": "train"}
    assert json.loads(launch.files["inputs/data.yaml"]) == {"datasets": [row]}
    assert "--dataset_name" not in launch.argv
    again = read(launch.files["inputs/data.yaml"])
    assert again.spec["data"]["id"] == "/srv/data/a: #1.parquet"


def test_held_out_answers_come_in_whole_groups() -> None:
    knobs = {"eval.every_steps": 5, "eval.samples_per_prompt": 12}

    spec = {"algorithm": "grpo", "knobs": knobs}
    assert "--per_device_eval_batch_size 12" in " ".join(command(spec).argv)
    many = {"algorithm": "grpo", "knobs": {**knobs, "placement.policy_gpus_per_node": 3}}
    assert "--per_device_eval_batch_size 12" in " ".join(command(many).argv)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"algorithm": "sft", "data": {"kind": "hub", "id": "a/b"}}, "reads the column completion"),
        ({"algorithm": "kto", "data": {"kind": "hub", "id": "a/b", "label_column": "good"}}, "column completion"),
        ({"algorithm": "rm", "data": {"kind": "hub", "id": "a/b", "chosen_column": "good"}}, "reads the column chosen"),
        ({"algorithm": "grpo", "data": {"kind": "hub", "id": "a/b", "prompt_column": "q"}}, "reads the column prompt"),
        ({"algorithm": "grpo", "data": {"kind": "hub", "id": "a/b", "eval_id": "c/d"}}, "a split of the training data"),
        (
            {"algorithm": "grpo", "data": {"kind": "path", "id": "/a.jsonl", "eval_split": "test"}},
            "one split of a data file",
        ),
        ({"algorithm": "grpo", "reward": {"kind": "file", "location": "/a/b.py"}}, "by its dotted name"),
        ({"algorithm": "grpo", "reward": {"kind": "url", "location": "http://a/b"}}, "asks no URL"),
    ],
)
def test_what_trl_cannot_be_told_is_refused_in_a_sentence(raw: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        command(raw)


def test_rows_are_conversations_under_the_names_that_trl_reads() -> None:
    row = {"prompt": "1 + 1", "response": "2", "answer": "2", "chosen": "2", "rejected": "3"}
    talk = {"role": "user", "content": "1 + 1"}

    def rows(algorithm: str) -> dict[str, object]:
        spec = parse_spec({"algorithm": algorithm, "trainer": {"name": "trl"}, "data": {"system_prompt": "Be brief."}})
        (written,) = inputs_of(spec).rows(spec, [row])
        return written

    system = {"role": "system", "content": "Be brief."}
    assert rows("sft") == {"prompt": [system, talk], "completion": [{"role": "assistant", "content": "2"}]}
    assert rows("grpo") == {"prompt": [system, talk], "answer": "2"}
    assert rows("dpo")["rejected"] == [{"role": "assistant", "content": "3"}]


def test_pairs_become_labels_whose_neighbours_answer_another_prompt() -> None:
    spec = parse_spec({"algorithm": "kto", "trainer": {"name": "trl"}})
    pairs = [{"prompt": f"p{i}", "chosen": f"good{i}", "rejected": f"bad{i}"} for i in range(4)]

    rows = inputs_of(spec).rows(spec, pairs)

    texts = [(row["prompt"][0]["content"], row["completion"][0]["content"], row["label"]) for row in rows]
    assert texts[:3] == [("p0", "good0", True), ("p2", "bad2", False), ("p1", "good1", True)]
    assert {text for _, text, _ in texts} == {f"{word}{i}" for word in ("good", "bad") for i in range(4)}
    assert all(a[0] != b[0] for a, b in pairwise(texts))


def test_labels_of_one_s_own_keep_their_order() -> None:
    raw = {"algorithm": "kto", "trainer": {"name": "trl"}, "data": {"label_column": "good"}}
    spec = parse_spec(raw)

    rows = inputs_of(spec).rows(spec, [{"prompt": "p", "response": "r", "good": False}])

    assert rows == [
        {
            "prompt": [{"role": "user", "content": "p"}],
            "completion": [{"role": "assistant", "content": "r"}],
            "label": False,
        }
    ]


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        ("trl reward --model_name_or_path a/b --dataset_name c/d --center_rewards_coefficient 0.01", "rm"),
        ("python trl/scripts/kto.py --model_name_or_path a/b --dataset_name c/d", "kto"),
        ("accelerate launch trl/scripts/rloo.py --model_name_or_path a/b --dataset_name c/d", "rloo"),
        ("model_name_or_path: a/b\ndataset_name: c/d\nloss_type: kto", "kto"),
        ("model_name_or_path: a/b\ndataset_name: c/d\nundesirable_weight: 2.0", "kto"),
        ("model_name_or_path: a/b\ndataset_name: c/d\nnum_generations: 2\nnormalize_advantages: true", "rloo"),
        ("--model_name_or_path a/b --dataset_name c/d --center_rewards_coefficient 0.01", "rm"),
    ],
)
def test_each_script_is_read_as_the_algorithm_that_it_trains(text: str, algorithm: str) -> None:
    assert spec_of(text).algorithm == algorithm


def test_what_a_script_does_otherwise_than_another_is_read_by_its_own_defaults() -> None:
    rloo = spec_of("trl rloo --model_name_or_path a/b --dataset_name c/d --reward_funcs x.y --generation_batch_size 8")
    kto = spec_of("trl kto --model_name_or_path a/b --dataset_name c/d --desirable_weight 1.33")

    assert (rloo.knob("rollout.samples_per_prompt"), rloo.knob("algorithm.kl_coefficient")) == (2, 0.05)
    assert (kto.knob("pairs.desirable_weight"), kto.data.label_column) == (1.33, "label")


def test_adapters_of_a_reward_model_train_its_head_too() -> None:
    def words(algorithm: str) -> str:
        return " ".join(command({"algorithm": algorithm, "knobs": {"lora.rank": 8}}).argv)

    assert "--lora_task_type SEQ_CLS" in words("rm")
    assert "--lora_task_type" not in words("dpo")


def test_a_documented_command_is_read() -> None:
    result, spec = read(DOCUMENTED), spec_of(DOCUMENTED)

    assert (spec.algorithm, spec.model.id, spec.data.id) == (
        "dpo",
        "Qwen/Qwen2-0.5B-Instruct",
        "trl-lib/ultrafeedback_binarized",
    )
    assert spec.data.eval_split == "test"
    assert spec.knob("placement.policy_gpus_per_node") == 4
    assert spec.knob("memory.zero_stage") == "3"
    assert spec.knob("train.batch_size") == 64
    assert (spec.knob("train.num_steps"), spec.knob("eval.every_steps")) == (1000, 50)
    assert (spec.knob("lora.rank"), spec.knob("lora.alpha"), spec.knob("pairs.beta")) == (32, 16, 0.2)
    why = reasons(result)
    assert "Did you mean --learning_rate?" in why["--lern_rate"]
    assert spec.knob("logging.services") == "wandb"
    assert "PEFT adapts modules" in why["--lora_target_modules"]
    assert SECRET not in repr(result)


def test_other_loggers_stand_beside_ours_and_learn_the_project() -> None:
    others = {"logging.services": "wandb, tensorboard, mlflow", "logging.project": "sums"}
    launch = command({"algorithm": "sft", "knobs": others})

    assert "--report_to" not in launch.argv  # the option takes one name
    path = launch.argv[launch.argv.index("--config") + 1]
    assert json.loads(launch.files[path]) == {"report_to": ["tensorboard", "wandb", "mlflow"]}
    assert launch.argv[launch.argv.index("--project") + 1] == "sums"
    assert (launch.env["WANDB_PROJECT"], launch.env["MLFLOW_EXPERIMENT_NAME"]) == ("sums", "sums")
    with pytest.raises(ValueError, match="no logger"):
        command({"algorithm": "sft", "knobs": {"logging.services": "--odd"}})


def test_all_loggers_are_not_guessed() -> None:
    result = read("trl sft --model_name_or_path a/b --dataset_name c/d --report_to all")

    assert "Name them" in reasons(result)["--report_to"]


def test_a_configuration_is_read() -> None:
    result, spec = read(CONFIG), spec_of(CONFIG)

    assert (spec.algorithm, spec.reward.kind, spec.reward.location) == ("grpo", "file", "accuracy_reward")
    assert spec.knob("rollout.backend") == "vllm"
    assert (spec.knob("rollout.samples_per_prompt"), spec.knob("rollout.prompts_per_step")) == (16, 2)
    assert spec.knob("train.updates_per_rollout") == 1
    assert spec.knob("algorithm.loss_aggregation") == "sequence_sum_scaled"
    assert spec.knob("algorithm.normalize_by_std") is False
    assert spec.knob("logging.every_steps") == 5
    assert "pushes it nowhere" in reasons(result)["push_to_hub"]
    assert "abcdef" not in repr(result)
    assert result.num_defaults == 1  # vllm_mode


def test_the_command_line_of_trl_is_read() -> None:
    spec = spec_of(
        "trl sft --model_name_or_path a/b --dataset-name c/d --packing --accelerate_config zero2 --bf16 false"
    )

    assert (spec.algorithm, spec.knob("train.packing"), spec.knob("memory.zero_stage")) == ("sft", True, "2")
    assert spec.knob("memory.precision") == "float32"


@pytest.mark.parametrize(
    "text",
    [
        "pip install -U trl\ntrl sft --model_name_or_path a/b --dataset_name c/d",
        "conda activate trl && trl sft --model_name_or_path a/b --dataset_name c/d",
        """bash -c "cd trl && trl sft --model_name_or_path a/b --dataset_name 'c/d'" """,
        "---\n# a document\nmodel_name_or_path: a/b\ndataset_name: c/d\n",
        "base: &base\n  dataset_name: c/d\n<<: *base\nmodel_name_or_path: a/b\n",
    ],
)
def test_a_text_that_says_more_than_the_command_is_read(text: str) -> None:
    spec = spec_of(text)

    assert (spec.algorithm, spec.model.id, spec.data.id) == ("sft", "a/b", "c/d")


def test_a_key_that_is_left_open_is_named_where_the_default_is_another() -> None:
    result = read("model_name_or_path: a/b\ndataset_name: c/d\nmax_length: null\neval_steps: null\n")

    assert reasons(result) == {"max_length": "'None' is not a number."}


def test_options_of_another_program_are_named() -> None:
    why = reasons(read("trl sft --model_name_or_path a/b --dataset_name c/d --num_generations 4 --do_train --seed x"))

    assert why["--num_generations"] == "It is an option of trl grpo, not of trl sft."
    assert why["--seed"] == "'x' is not a number."
    assert "trains in any case" in why["--do_train"]


def test_steps_that_are_no_whole_rollouts_are_named() -> None:
    text = (
        "trl grpo --model_name_or_path a/b --dataset_name c/d --reward_funcs x.y --num_iterations 4 --max_steps 10 "
        "--generation_batch_size 60 --num_generations 8"
    )

    why = reasons(read(text))

    assert "no whole number of rollouts" in why["--max_steps"]
    assert "no whole number of prompts" in why["--generation_batch_size"]
    assert "no whole number of rollouts" in reasons(read(f"{text.replace(' 4 ', ' 3 ')} --max_steps 9"))["--save_steps"]


def test_a_command_that_never_saves_has_no_default_of_steps() -> None:
    text = (
        "trl grpo --model_name_or_path a/b --dataset_name c/d --reward_funcs x.y --num_iterations 3 --max_steps 9 "
        "--num_generations 8 --save_strategy no"
    )

    found = read(text)

    assert "--save_steps" not in reasons(found)
    assert parse_spec(found.spec).knob("checkpoint.every_steps") == 0


@pytest.mark.parametrize("text", ["trl distillation --beta 1", "pip install trl", "a: 1", "nonsense"])
def test_what_is_no_training_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        read(text)
