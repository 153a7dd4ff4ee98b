"""Checkpoints of other trainers: which are whole, and how a run goes on from one. Laid out as the trainers do it."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.launching import Launch
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec


def spec_of(trainer: str, algorithm: str, version: str = "", **knobs: Any) -> RunSpec:
    return parse_spec({"trainer": {"name": trainer, "version": version}, "algorithm": algorithm, "knobs": knobs})


def write_files(run_dir: Path, *files: str, **texts: str) -> None:
    for name in files:
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).write_text(texts.get(Path(name).name.partition(".")[0], "x"), encoding="utf-8")


def saved(spec: RunSpec, run_dir: Path) -> dict[int, str]:
    there = adapter(spec.trainer.name).checkpoints.saved(spec=spec, run_dir=run_dir)
    return {step: str(folder.relative_to(run_dir)) for step, folder in sorted(there.items())}


def resumed(spec: RunSpec, folder: str, *argv: str) -> Launch:
    launch = Launch(argv=("python", "-m", "trainer", *argv), files={"inputs/a": "b"})
    return adapter(spec.trainer.name).checkpoints.resumed(launch=launch, spec=spec, folder=Path(folder))


def test_verls_are_whole_up_to_the_step_that_its_file_names(tmp_path: Path) -> None:
    spec = spec_of("verl", "grpo")
    assert saved(spec, tmp_path) == {}
    write_files(
        tmp_path,
        "checkpoints/global_step_20/actor/model_world_size_2_rank_0.pt",
        "checkpoints/global_step_40/actor/model_world_size_2_rank_0.pt",
        "checkpoints/global_step_60/data.pt",
        "checkpoints/global_step_x/data.pt",
        "checkpoints/latest_checkpointed_iteration.txt",
        latest_checkpointed_iteration="40",
    )

    assert saved(spec, tmp_path) == {20: "checkpoints/global_step_20", 40: "checkpoints/global_step_40"}

    launch = resumed(spec, "/r/a1/checkpoints/global_step_20", "trainer.resume_mode=disable", "++trainer.x=1")
    assert launch.argv[3:] == (
        "++trainer.x=1",
        "trainer.resume_mode=resume_path",
        "trainer.resume_from_path=/r/a1/checkpoints/global_step_20",
    )


def test_openrlhfs_are_whole_where_deepspeed_says_so_for_every_role(tmp_path: Path) -> None:
    ppo = spec_of("openrlhf", "ppo")
    write_files(
        tmp_path,
        "checkpoints/_actor/global_step20/mp_rank_00_model_states.pt",
        "checkpoints/_actor/best_global_step20/mp_rank_00_model_states.pt",
        "checkpoints/_actor/best_global_step30/mp_rank_00_model_states.pt",
        "checkpoints/_actor/global_step40/mp_rank_00_model_states.pt",
        "checkpoints/_actor/global_step60/mp_rank_00_model_states.pt",
        "checkpoints/_actor/latest",
        "checkpoints/_critic/global_step20/mp_rank_00_model_states.pt",
        "checkpoints/_critic/global_step40/half",
        "checkpoints/_critic/latest",
        latest="global_step40",
    )
    write_files(tmp_path, "checkpoints/_critic/latest", latest="global_step20")

    assert saved(ppo, tmp_path) == {20: "checkpoints/_actor/global_step20"}
    assert saved(spec_of("openrlhf", "grpo"), tmp_path) == {
        20: "checkpoints/_actor/global_step20",
        30: "checkpoints/_actor/best_global_step30",
        40: "checkpoints/_actor/global_step40",
    }
    weights_only = spec_of("openrlhf", "grpo", **{"checkpoint.weights_only": True})
    assert saved(weights_only, tmp_path) == {}

    launch = resumed(ppo, "/r/a1/checkpoints/_actor/global_step20")
    assert launch.argv[-1] == "--ckpt.load_enable"
    assert launch.copies == {
        "checkpoints/_actor/global_step20": Path("/r/a1/checkpoints/_actor/global_step20"),
        "checkpoints/_critic/global_step20": Path("/r/a1/checkpoints/_critic/global_step20"),
    }
    assert launch.files == {
        "inputs/a": "b",
        "checkpoints/_actor/latest": "global_step20",
        "checkpoints/_critic/latest": "global_step20",
    }
    older = spec_of("openrlhf", "sft", version="0.8.6")
    launch = resumed(older, "/r/a1/checkpoints/global_step20", "--load_checkpoint")
    assert launch.argv.count("--load_checkpoint") == 1
    assert launch.copies == {"checkpoints/global_step20": Path("/r/a1/checkpoints/global_step20")}


def test_trls_are_whole_with_their_state_and_lie_between_rollouts_or_not(tmp_path: Path) -> None:
    spec = spec_of("trl", "grpo", **{"train.updates_per_rollout": 2})
    write_files(
        tmp_path,
        "model/final/checkpoint-4/trainer_state.json",
        "model/final/checkpoint-7/trainer_state.json",
        "model/final/checkpoint-8/trainer_state.json",
        "model/final/checkpoint-8/checkpoint-is-incomplete.txt",
        "model/final/checkpoint-10/model.safetensors",
        "model/final/checkpoint-x/trainer_state.json",
    )

    assert saved(spec, tmp_path) == {2: "model/final/checkpoint-4"}

    launch = resumed(spec, "/r/a1/model/final/checkpoint-4", "--resume_from_checkpoint", "/old", "--bf16", "true")
    assert launch.argv[3:] == ("--bf16", "true", "--resume_from_checkpoint", "/r/a1/model/final/checkpoint-4")


@pytest.mark.parametrize(("trainer", "saves"), [("native", False), ("verl", False), ("openrlhf", False), ("trl", True)])
def test_a_trainer_says_whether_a_stop_leaves_a_checkpoint(trainer: str, saves: bool) -> None:
    spec = parse_spec({"trainer": {"name": trainer}, "algorithm": "sft"})
    assert adapter(trainer).checkpoints.saves_when_stopped(spec) == saves


def test_the_built_in_trainer_is_started_as_ever(tmp_path: Path) -> None:
    native = parse_spec({})
    write_files(tmp_path, "checkpoints/step-40/x", "checkpoints/.step-60.draft/x")

    assert saved(native, tmp_path) == {40: "checkpoints/step-40"}
    assert resumed(native, "/r/checkpoints/step-40").argv == ("python", "-m", "trainer")


@pytest.mark.parametrize(("algorithm", "folder"), [("dpo", "checkpoints/x"), ("grpo", "checkpoints/_actor/x")])
def test_openrlhfs_shards_are_merged_with_the_model_that_was_trained(algorithm: str, folder: str) -> None:
    spec = spec_of("openrlhf", algorithm)
    merge = adapter("openrlhf").checkpoints.merge_command

    command = merge(spec=spec, python="py", folder=Path("/r/a1") / folder, target=Path("/t"))

    assert command[0] == "py"
    assert Path(command[1]).is_file()
    options = ("--precision=bfloat16", "--alpha=16", "--trust-remote-code")
    assert command[2:] == ("zero", f"/r/a1/{folder}", "/r/a1/inputs/model", "/t", *options)


def test_adapters_are_merged_into_the_model_that_was_trained_in_the_strength_that_the_run_says() -> None:
    verl, trl = adapter("verl").checkpoints, adapter("trl").checkpoints
    about = {"python": "py", "folder": Path("/r/a1/checkpoints/global_step_4"), "target": Path("/t")}
    of_verl = verl.merge_command(spec=spec_of("verl", "grpo", **{"lora.rank": 8, "lora.alpha": 24}), **about)
    of_trl = trl.merge_command(spec=spec_of("trl", "sft", **{"lora.rank": 8}), **about)

    shards = ("--local_dir", "/r/a1/checkpoints/global_step_4/actor", "--target_dir", "/t/merger")
    merger = ("py", "-m", "verl.model_merger", "merge", "--backend", "fsdp", *shards)
    where = ("/t/merger/lora_adapter", "inputs/model", "/t", "--precision=bfloat16", "--alpha=24")
    assert of_verl[2:] == ("adapter", *where, "--made-by", *merger)
    assert of_trl[2:] == ("adapter", "/r/a1/checkpoints/global_step_4", "inputs/model", "/t", "--precision=bfloat16")
    assert trl.merge_command(spec=spec_of("trl", "sft"), **about) == ()
    trusting = spec_of("trl", "sft", **{"lora.rank": 8, "models.trust_remote_code": True})
    assert "--trust-remote-code" in trl.merge_command(spec=trusting, **about)
    assert trl.merge_command(spec=spec_of("trl", "rm", **{"lora.rank": 8}), **about)[-1] == "--scores"


def test_verls_shards_are_merged_in_the_precision_of_the_run() -> None:
    spec = spec_of("verl", "grpo", **{"memory.precision": "float32"})
    about = {"python": "py", "folder": Path("/r/a1/checkpoints/global_step_4"), "target": Path("/t")}

    command = adapter("verl").checkpoints.merge_command(spec=spec, **about)

    shards = "/r/a1/checkpoints/global_step_4/actor"
    assert command[2:] == ("fsdp", shards, f"{shards}/huggingface", "/t", "--precision=float32")


def test_what_deepspeeds_program_cannot_make_whole_is_not_merged() -> None:
    spec = spec_of("openrlhf", "sft", **{"parallel.tensor_parallel_size": 2})
    merge = adapter("openrlhf").checkpoints.merge_command

    assert merge(spec=spec, python="py", folder=Path("/r/a1/checkpoints/x"), target=Path("/t")) == ()


def test_the_built_in_trainers_own_program_makes_models_of_its_checkpoints() -> None:
    command = adapter("native").checkpoints.merge_command
    made = command(spec=parse_spec({}), python="py", folder=Path("/r/checkpoints/step-4"), target=Path("/t"))
    assert made == ("py", "-m", "jobs.engine.checkpoints.merge", "/r/checkpoints/step-4", "/t")


def test_a_merge_takes_the_weights_alone_where_the_checkpoint_says_how_many(tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(b"x" * 1000)
    native, verl = adapter("native").checkpoints, adapter("verl").checkpoints
    assert verl.merge_bytes(spec=spec_of("verl", "sft"), folder=tmp_path) == 2000
    assert native.merge_bytes(spec=parse_spec({}), folder=tmp_path) == 2000

    parameters = {"a": [2, 3], "b": [5]}
    (tmp_path / "checkpoint.json").write_text(json.dumps({"roles": {"policy": {"parameters": parameters}}}))
    assert native.merge_bytes(spec=parse_spec({}), folder=tmp_path) == 44


@pytest.mark.parametrize(
    ("trainer", "algorithm", "knobs", "words"),
    [
        ("native", "rm", {}, ""),
        ("native", "sft", {"lora.rank": 4, "quantization.load_in_4bit": True}, ""),
        ("openrlhf", "rm", {}, ""),
        ("openrlhf", "sft", {"lora.rank": 8}, ""),
        ("trl", "sft", {"lora.rank": 8}, ""),
        ("trl", "rm", {"lora.rank": 8}, ""),
        ("verl", "sft", {"lora.rank": 8}, ""),
        ("verl", "grpo", {"lora.rank": 8}, ""),
        ("verl", "grpo", {"parallel.engine": "megatron", "lora.megatron_rank": 8}, "leaves out Megatron's adapters"),
        ("own_command", "sft", {}, "only the trainer knows"),
        ("native", "sft", {"lora.rank": 4}, ""),
        ("verl", "sft", {}, ""),
        ("trl", "rm", {}, ""),
    ],
)
def test_a_trainer_says_why_no_model_is_made_of_its_checkpoints(
    trainer: str, algorithm: str, knobs: dict[str, Any], words: str
) -> None:
    checkpoints, spec = adapter(trainer).checkpoints, spec_of(trainer, algorithm, **knobs)
    why = checkpoints.why_no_model(spec)

    assert words in why
    assert bool(why) == bool(words)
    if why:
        assert checkpoints.merge_command(spec=spec, python="py", folder=Path("/r/a1/c/x"), target=Path("/t")) == ()


def test_verls_merger_of_megatron_runs_at_the_end_of_the_run_alone() -> None:
    checkpoints, spec = adapter("verl").checkpoints, spec_of("verl", "grpo", **{"parallel.engine": "megatron"})

    assert "on a GPU alone" in checkpoints.why_no_model(spec)
    assert checkpoints.merge_command(spec=spec, python="py", folder=Path("/r/a1/c/x"), target=Path("/t"))
