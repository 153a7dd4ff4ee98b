"""What trainers have saved of adapters becomes a whole model, which says what PEFT's own wrapped model said."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig

from jobs.runner import model_merge
from tests.jobs.engine.data.text_models import byte_level, model_folder

RANK, ALPHA, EXACT = 4, 12, "--precision=float32"
PROMPT_IDS = torch.tensor([[5, 9, 2, 33, 71, 8]])


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A small model with its tokenizer."""
    tokenizer = byte_level()
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "origin")
    return model_folder(tmp_path / "origin", tokenizer)


@pytest.fixture
def trained(origin: Path) -> Any:
    """The model with adapters that a training has changed."""
    base = AutoModelForCausalLM.from_pretrained(origin)
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, config).eval()
    torch.manual_seed(4)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def merge(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["model_merge.py", *map(str, words)])
    model_merge.main()


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=PROMPT_IDS).logits
    return logits


def check(target: Path, trained: Any, origin: Path) -> None:
    """The folder is a whole model, which says what the trained one says, and not what the untrained does."""
    whole = AutoModelForCausalLM.from_pretrained(target).eval()
    untrained = AutoModelForCausalLM.from_pretrained(origin).eval()
    wanted = logits_of(trained)
    assert torch.allclose(logits_of(whole), wanted, atol=1e-4)
    assert not torch.allclose(logits_of(untrained), wanted, atol=1e-1)
    assert (target / "tokenizer.json").is_file()
    assert not list(target.glob("adapter_*"))


def test_a_folder_of_peft_becomes_the_model_with_its_adapters(
    tmp_path: Path, origin: Path, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.save_pretrained(tmp_path / "checkpoint-4")

    merge(monkeypatch, "adapter", tmp_path / "checkpoint-4", origin, tmp_path / "whole", EXACT)

    check(tmp_path / "whole", trained, origin)


def test_code_that_comes_with_a_model_does_not_run_unless_it_did_in_the_trainer(
    tmp_path: Path, origin: Path, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.save_pretrained(tmp_path / "checkpoint-4")
    config = json.loads((origin / "config.json").read_text())
    (origin / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "own.Model"}}))
    (origin / "own.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'has-run')!r}).touch()\n")

    words = ("adapter", tmp_path / "checkpoint-4", origin, tmp_path / "whole", EXACT)
    merge(monkeypatch, *words)
    assert not (tmp_path / "has-run").exists()

    with pytest.raises(AttributeError, match="Model"):  # it has run, and holds no such class
        merge(monkeypatch, *words, "--trust-remote-code")
    assert (tmp_path / "has-run").exists()


def test_an_adapter_that_another_program_writes_is_scaled_as_the_run_says_and_its_folder_goes(
    tmp_path: Path, origin: Path, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As verl's merger has it: beside a folder of the untrained model, with an alpha of 0 in earlier versions."""
    trained.save_pretrained(tmp_path / "adapter")
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "lora_alpha": 0}))
    made = tmp_path / "whole" / "merger"
    copy = f"import shutil; shutil.copytree({str(tmp_path / 'adapter')!r}, {str(made / 'lora_adapter')!r})"

    words = ("adapter", made / "lora_adapter", origin, tmp_path / "whole", EXACT, f"--alpha={ALPHA}")
    merge(monkeypatch, *words, "--made-by", sys.executable, "-c", copy)

    check(tmp_path / "whole", trained, origin)
    assert not made.exists()


def test_a_checkpoint_of_deepspeed_with_adapters_becomes_the_model_with_them(
    tmp_path: Path, origin: Path, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of stage 0, which has nothing in shards; `make proof-tests` has OpenRLHF write one of stage 2."""
    folder = tmp_path / "global_step4"
    folder.mkdir()
    torch.save({"module": trained.state_dict()}, folder / model_merge.UNSHARDED)

    words = ("zero", folder, origin, tmp_path / "whole", EXACT, f"--alpha={ALPHA}")
    merge(monkeypatch, *words)

    check(tmp_path / "whole", trained, origin)


@pytest.fixture
def shards(tmp_path: Path, origin: Path) -> Path:
    """The model after a training, as verl's FSDP saves it: the DTensors of two ranks, and texts without weights."""
    model = AutoModelForCausalLM.from_pretrained(origin)
    torch.manual_seed(5)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    folder = tmp_path / "global_step_4"
    shutil.copytree(origin, folder / "huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "huggingface" / "preprocessor_config.json").write_text("{}")
    (folder / "huggingface" / "generation_config.json").write_text('{"eos_token_id": 7}')
    for rank in (0, 1):
        dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
        states = {
            name: DTensor.from_local(tensor.chunk(2)[rank].clone(), mesh, [Shard(0)], run_check=False)
            for name, tensor in model.state_dict().items()
        }
        torch.save(states, folder / f"model_world_size_2_rank_{rank}.pt")
        dist.destroy_process_group()
    torch.save(model.state_dict(), tmp_path / "whole.pt")
    return folder


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_shards_of_fsdp_become_the_model_in_the_precision_of_the_run(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    target = tmp_path / "made"

    merge(monkeypatch, "fsdp", shards, shards / "huggingface", target, f"--precision={precision}")

    dtype = getattr(torch, precision)
    states = AutoModelForCausalLM.from_pretrained(target).state_dict()
    for name, tensor in torch.load(tmp_path / "whole.pt").items():
        assert states[name].dtype == dtype
        assert torch.equal(states[name], tensor.to(dtype)), name
    assert {"tokenizer.json", "preprocessor_config.json"} <= {path.name for path in target.iterdir()}
    assert json.loads((target / "generation_config.json").read_text())["eos_token_id"] == 7


def test_shards_of_a_rank_that_are_not_there_are_named(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shards / "model_world_size_2_rank_1.pt").unlink()

    with pytest.raises(SystemExit, match="lacks the shards of 1 of 2 ranks, the first is 1"):
        merge(monkeypatch, "fsdp", shards, shards / "huggingface", tmp_path / "made", EXACT)
    assert not (tmp_path / "made").exists()


def test_a_checkpoint_of_a_reward_model_becomes_one_of_sequence_classification(
    tmp_path: Path, origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = AutoModelForSequenceClassification.from_pretrained(origin, num_labels=1).eval()
    folder = tmp_path / "global_step4"
    folder.mkdir()
    torch.save({"module": judge.state_dict()}, folder / model_merge.UNSHARDED)

    merge(monkeypatch, "zero", folder, origin, tmp_path / "whole", EXACT, "--scores")

    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole").eval()
    trained = judge.state_dict()
    assert all(torch.equal(tensor, trained[name]) for name, tensor in whole.state_dict().items())
    assert torch.allclose(logits_of(whole), logits_of(judge), atol=1e-4)  # sums may be taken in another order
    assert whole.config.pad_token_id == 0  # so that several texts can be scored together
    tokenizer = model_merge.AutoTokenizer.from_pretrained(origin)
    untrained = AutoModelForSequenceClassification.from_pretrained(origin, num_labels=1).eval()
    assert model_merge.says_the_same(whole, judge, tokenizer, scores=True)
    assert not model_merge.says_the_same(untrained, judge, tokenizer, scores=True)  # its head is drawn


def test_adapters_of_a_reward_model_become_it_with_their_head_and_are_refused_without(
    tmp_path: Path, origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TRL's PEFT keeps both where it is told what the model is for."""
    judge = AutoModelForSequenceClassification.from_pretrained(origin, num_labels=1)
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="SEQ_CLS")
    trained = get_peft_model(judge, config).eval()
    for name, parameter in trained.named_parameters():
        if "lora_B" in name or "modules_to_save" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    folder = tmp_path / "checkpoint-4"
    trained.save_pretrained(folder)

    merge(monkeypatch, "adapter", folder, origin, tmp_path / "whole", EXACT, "--scores")

    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole").eval()
    assert torch.allclose(logits_of(whole), logits_of(trained), atol=1e-4)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file({name: w for name, w in weights.items() if "lora" in name}, folder / "adapter_model.safetensors")
    with pytest.raises(SystemExit, match="without the trained head"):
        merge(monkeypatch, "adapter", folder, origin, tmp_path / "other", EXACT, "--scores")


def test_a_checkpoint_of_another_model_is_refused_with_what_it_lacks(
    tmp_path: Path, origin: Path, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "global_step4"
    folder.mkdir()
    states = {name: tensor for name, tensor in trained.state_dict().items() if "layers.1.mlp.up_proj" not in name}
    torch.save({"module": states}, folder / model_merge.UNSHARDED)

    with pytest.raises(SystemExit, match=r"lacks parameters of .*model\.layers\.1\.mlp\.up_proj\.weight"):
        merge(monkeypatch, "zero", folder, origin, tmp_path / "whole", EXACT, f"--alpha={ALPHA}")
    assert not (tmp_path / "whole").exists()
