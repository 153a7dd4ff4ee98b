"""GRPO that trains adapters alone, with ZeRO-3, two ranks and vLLM, and what it leaves: then on with one rank."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.checkpoints.merge import merge
from jobs.engine.data.model_files import model_folder
from jobs.engine.failures.sync_guard import LARGEST_GAP
from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine
SPEC: dict[str, Any] = {
    "algorithm": "grpo",
    "hardware": {"layout": "split"},
    "knobs": {
        "train.num_steps": 3,
        "rollout.prompts_per_step": 4,
        "rollout.samples_per_prompt": 4,
        "eval.num_prompts": 8,
        "eval.every_steps": 2,
        "checkpoint.every_steps": 2,
        "checkpoint.keep": 4,
        "optimizer.learning_rate": 3e-3,
        "memory.zero_stage": "3",
        "lora.rank": 4,
    },
}


@pytest.fixture(scope="module")
def whole(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """The run of three steps."""
    ended: EndedRun = start_engine(tmp_path_factory.mktemp("adapters") / "a1", SPEC).wait()
    assert ended.code == 0, ended.output
    return ended


def tokens_of(model: Any) -> list[int]:
    """Return what a model says greedily to a few tokens."""
    prompt = torch.arange(3, 19).unsqueeze(0)
    said = model.eval().generate(prompt, max_new_tokens=24, do_sample=False, pad_token_id=0)
    return [int(token) for token in said[0]]


@pytest.mark.slow("waits for the run that all of them read")
def test_both_exported_folders_say_what_the_policy_says_and_not_the_base(whole: EndedRun) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = model_folder(parse_spec(SPEC).model)
    models = whole.run_dir / "model"
    merged = AutoModelForCausalLM.from_pretrained(models / "final", dtype=torch.float32)
    adapted = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), models / "final-adapter"
    )
    prompt = torch.arange(3, 19).unsqueeze(0)
    with torch.no_grad():
        of_merged, of_adapted = merged(prompt).logits, adapted(prompt).logits
        with adapted.disable_adapter():
            of_base = adapted(prompt).logits

    torch.testing.assert_close(of_merged, of_adapted, atol=1e-4, rtol=0)
    assert (of_merged - of_base).abs().max() > 0.01
    assert tokens_of(merged) == tokens_of(adapted)


def test_a_model_of_the_last_checkpoint_is_the_exported_one(whole: EndedRun, tmp_path: Path) -> None:
    merge(whole.run_dir / "checkpoints" / "step-3", tmp_path / "made")

    exported = whole.run_dir / "model" / "final"
    for path in exported.glob("*.safetensors"):
        assert (tmp_path / "made" / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in exported.iterdir()} == {path.name for path in (tmp_path / "made").iterdir()}


def test_vllm_has_the_merged_weights_after_every_sync(whole: EndedRun) -> None:
    gaps = whole.series("sync/max_logprob_diff")

    assert sorted(gaps) == [0, 1, 2, 3]
    assert max(gaps.values()) <= LARGEST_GAP


def test_the_reference_is_the_base_in_the_policys_own_ranks(whole: EndedRun) -> None:
    kl = whole.series("kl/reference")

    assert {event["role"] for event in whole.of("span")} >= {"policy", "vllm"}
    assert "reference" not in {event["role"] for event in whole.of("span")}
    assert kl[1] == pytest.approx(0.0, abs=1e-6)  # the first adapter changes nothing
    assert kl[3] > 1e-6


def test_checkpoints_hold_adapters_alone_and_it_is_said_how_much_is_trained(whole: EndedRun) -> None:
    folder = whole.run_dir / "checkpoints" / "step-2"
    names, elements = set(), 0
    for path in folder.rglob("*.safetensors"):
        with safe_open(path, framework="pt") as part:
            for key in part.keys():  # noqa: SIM118 (not a dict)
                state, _, name = key.split("/", 2)
                names.add(name)
                elements += part.get_slice(key).get_shape()[0] if state == "weights" else 0
    trained = whole.series("policy/trainable_parameters")[0]

    assert names
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert elements == trained
    assert whole.series("policy/adapter_bytes")[0] == 4 * trained
    assert 0 < whole.series("policy/trainable_fraction")[0] < 0.2
    assert any("Adapters are trained" in event["text"] for event in whole.of("note"))
    sizes = {event["name"]: event["size"] for event in whole.of("artifact")}
    assert sizes["checkpoint-2"] < 0.6 * sizes["model-final"]
    assert sizes["adapter-final"] < 0.3 * sizes["model-final"]


@pytest.mark.proof
@pytest.mark.slow("a second start of the engine")
def test_it_goes_on_in_another_layout_with_another_number_of_ranks_and_another_stage(
    whole: EndedRun, start_engine: Any, tmp_path: Path
) -> None:
    knobs = SPEC["knobs"] | {"memory.zero_stage": "2"}
    folder = whole.run_dir / "checkpoints" / "step-2"
    run_dir = tmp_path / "a2"
    run_dir.mkdir()
    (run_dir / "resume.json").write_text(json.dumps({"attempt": 1, "step": 2, "folder": str(folder)}))
    ended = start_engine(run_dir, SPEC | {"hardware": {"layout": "shared", "policy_ranks": 1}, "knobs": knobs}).wait()

    assert ended.code == 0, ended.output
    for name in ("reward/mean", "loss/policy", "kl/reference"):
        assert ended.series(name)[3] == pytest.approx(whole.series(name)[3], abs=1e-5)
    assert (ended.run_dir / "model" / "best-adapter").is_dir()
