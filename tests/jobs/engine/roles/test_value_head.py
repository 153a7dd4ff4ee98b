"""The critic's model: where it starts, and that packed sequences have the values of padded ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, Qwen2Config, T5Config

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.problem import RunProblem
from jobs.engine.roles.critic import critic_folder
from jobs.engine.roles.value_head import load_score_model, load_value_model
from tests.jobs.engine.policy_batches import spec_of
from tests.jobs.engine.roles.test_head import SIZES, batch_of

LENGTHS = [9, 4, 12, 1, 12, 7]
CONFIGS: dict[str, Any] = {"qwen2": Qwen2Config, "llama": LlamaConfig}


def save(config: Any, folder: Path, *, auto: Any = AutoModelForCausalLM) -> Path:
    torch.manual_seed(5)
    auto.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", list(CONFIGS))
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_packed_sequences_have_the_values_of_padded_ones_and_teach_the_same(
    tmp_path: Path, family: str, precision: str
) -> None:
    """In float32 to 1e-5; in bfloat16 to the rounding of its 8 bits."""
    folder = save(CONFIGS[family](**SIZES, num_labels=1), tmp_path, auto=AutoModelForSequenceClassification)
    batch = batch_of(LENGTHS)
    found = []
    for is_packed in (False, True):
        model = load_value_model(folder, precision=precision, is_packed=is_packed).train()
        values_BL = model(batch.tokens_BL, batch.mask_BL, batch.lengths_B)
        loss = (values_BL[batch.mask_BL] - 1).square().mean()
        gradient = torch.cat([g.flatten().float() for g in torch.autograd.grad(loss, list(model.parameters()))])
        assert model.is_packed is is_packed
        found.append((values_BL.detach(), gradient))

    (padded_BL, padded), (packed_BL, packed) = found
    is_exact = precision == "float32"
    assert padded_BL.dtype == torch.float32
    assert padded_BL[batch.mask_BL].std() > 0
    assert not padded_BL[~batch.mask_BL].any()
    assert torch.allclose(packed_BL, padded_BL, atol=1e-5 if is_exact else 5e-3)
    assert float((packed - padded).norm()) <= (1e-5 if is_exact else 0.02) * float(padded.norm())


def test_a_value_is_what_the_model_expects_before_it_sees_the_token(tmp_path: Path) -> None:
    folder = save(LlamaConfig(**SIZES, num_labels=1), tmp_path, auto=AutoModelForSequenceClassification)
    model, batch = load_value_model(folder, precision="float32", is_packed=False), batch_of([9])
    tokens_BL = batch.tokens_BL.clone()
    tokens_BL[0, 5] = (tokens_BL[0, 5] + 7) % 61

    before_BL = model(batch.tokens_BL, batch.mask_BL)
    after_BL = model(tokens_BL, batch.mask_BL)

    counted = batch.mask_BL[0]
    assert torch.equal(after_BL[0, :6], before_BL[0, :6])
    assert (after_BL[0, 6:] != before_BL[0, 6:])[counted[6:]].all()


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_score_is_transformers_own_of_the_sequence_up_to_its_last_counted_token(
    tmp_path: Path, is_packed: bool
) -> None:
    folder = save(Qwen2Config(**SIZES, num_labels=1), tmp_path, auto=AutoModelForSequenceClassification)
    model = load_score_model(folder, precision="float32", is_packed=is_packed, field="model.id")
    batch = batch_of(LENGTHS)
    mask_BL = batch.mask_BL.clone()
    mask_BL[0, 7:] = False  # what comes behind counts for nothing

    with torch.no_grad():
        scores_B = model(batch.tokens_BL, mask_BL, batch.lengths_B)
        whole = AutoModelForSequenceClassification.from_pretrained(folder)
        whole.config.pad_token_id = None  # of one sequence at a time the last token is looked at
        wanted = [
            whole(input_ids=tokens_L[None, : int(mask_L.nonzero().max()) + 1]).logits.item()
            for tokens_L, mask_L in zip(batch.tokens_BL, mask_BL, strict=True)
            if mask_L.any()
        ]

    assert model.is_packed is is_packed
    assert scores_B.dtype == torch.float32
    assert scores_B[mask_BL.any(dim=1)].tolist() == pytest.approx(wanted, abs=1e-5)


def test_a_language_model_gets_a_head_of_zeros_and_keeps_its_layers(tmp_path: Path) -> None:
    folder = save(Qwen2Config(**SIZES), tmp_path)

    model = load_value_model(folder, precision="float32", is_packed=False)

    assert not model.score.weight.any()
    whole = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(model.model.layers[0].mlp.up_proj.weight, whole.model.layers[0].mlp.up_proj.weight)
    assert sum(name.endswith("score.weight") for name in model.state_dict()) == 1


def test_a_reward_model_keeps_its_head(tmp_path: Path) -> None:
    folder = save(Qwen2Config(**SIZES, num_labels=1), tmp_path, auto=AutoModelForSequenceClassification)

    model = load_value_model(folder, precision="float32", is_packed=False)

    whole = AutoModelForSequenceClassification.from_pretrained(folder)
    assert torch.equal(model.score.weight, whole.score.weight)
    assert model.score.weight.any()


def test_a_reward_model_without_a_head_of_its_own_is_refused(tmp_path: Path) -> None:
    folder = save(Qwen2Config(**SIZES), tmp_path)

    with pytest.raises(RunProblem, match=r"no weights for score\.weight") as refused:
        load_score_model(folder, precision="float32", is_packed=False, field="reward.location", has_head=True)

    assert refused.value.field == "reward.location"


def test_a_classifier_of_several_labels_is_refused(tmp_path: Path) -> None:
    folder = save(Qwen2Config(**SIZES, num_labels=3), tmp_path, auto=AutoModelForSequenceClassification)

    with pytest.raises(RunProblem) as refused:
        load_value_model(folder, precision="float32", is_packed=False)

    assert refused.value.field == "knobs.models.critic_path"


def test_a_model_without_a_head_for_each_token_is_refused(tmp_path: Path) -> None:
    config = T5Config(vocab_size=64, d_model=16, d_ff=32, num_layers=1, num_heads=2, d_kv=8, num_labels=1)
    folder = save(config, tmp_path, auto=AutoModelForSequenceClassification)

    with pytest.raises(RunProblem, match="has no scalar head in transformers"):
        load_value_model(folder, precision="float32", is_packed=False)


def spec_with(critic: str) -> RunSpec:
    return spec_of("ppo", models__critic_path=critic)


def test_the_critic_starts_from_the_policys_folder_or_the_one_that_is_named(tmp_path: Path) -> None:
    bundled = BUNDLED / "tiny-word-problems"
    same = Qwen2Config(**SIZES | {"vocab_size": _vocabulary(bundled)}, num_labels=1)
    folder = save(same, tmp_path / "rm", auto=AutoModelForSequenceClassification)

    assert critic_folder(spec_with("policy")) == bundled
    assert critic_folder(spec_with("tiny-word-problems")) == bundled
    assert critic_folder(spec_with(str(folder))) == folder


@pytest.mark.parametrize("is_there", [True, False])
def test_a_critic_of_another_vocabulary_or_of_no_files_is_refused(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "rm"
    if is_there:
        save(Qwen2Config(**SIZES), folder)
    else:
        folder.mkdir()

    with pytest.raises(RunProblem) as refused:
        critic_folder(spec_with(str(folder)))

    assert refused.value.field == "knobs.models.critic_path"
    assert ("a vocabulary of" in refused.value.message) is is_there


def _vocabulary(folder: Path) -> int:

    return int(json.loads((folder / "config.json").read_text())["vocab_size"])
