"""Make a Hugging Face folder of what a trainer has saved.

    python model_merge.py zero CHECKPOINT MODEL TARGET --precision bfloat16 [--alpha 16] [--scores]
    python model_merge.py fsdp SHARDS MODEL TARGET --precision bfloat16
    python model_merge.py adapter ADAPTER MODEL TARGET --precision bfloat16 [--alpha 16] [--made-by PROGRAM ...]

`zero` takes a checkpoint of DeepSpeed's, whose shards its own `zero_to_fp32` gathers; `fsdp` a folder of files
`model_world_size_<n>_rank_<i>.pt` with the DTensors of each rank; `adapter` a folder of PEFT's. MODEL, which was
trained, gives classes, configuration and tokenizer; for `fsdp` it needs no weights, and what else it holds is kept. The
precision is that of what is written. With `--scores` the checkpoint is of a reward model, which becomes one of
transformers' class for sequence classification. Code that comes with MODEL runs with `--trust-remote-code` alone.

PROGRAM writes the adapter first, into the folder that ADAPTER lies in, which is removed then. With ALPHA adapters are
scaled by it, whatever the folder says: a trainer's program may not know it and write 0.

What was written is loaded again and has to draw the same tokens, the most likely one each time, as what was merged; of
a reward model to have its weights and scores. Run by the interpreter of the trainer, never imported.
"""

import argparse
import math
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationConfig,
)
from transformers.utils import GENERATION_CONFIG_NAME

PROMPTS = ("The answer to 12 + 30 is", "Once")
NUM_TOKENS = 16
HEADS = ("score.weight", "classifier.weight")
"""What PEFT keeps as a whole of a model for sequence classification, by the ends of their names."""

UNSHARDED = "mp_rank_00_model_states.pt"
_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
_WEIGHTS = (".safetensors", ".bin", ".index.json")
_WRAPPED, _BASE = "base_model.model.", ".base_layer"
_DOWN, _UP = ".lora_A.default.weight", ".lora_B.default.weight"


def gathered(folder: Path) -> Mapping[str, Any]:
    """Return the whole parameters of a checkpoint of DeepSpeed's by name, in float32 where ZeRO had them in shards.

    Raises: SystemExit with a sentence for one of tensor parallel ranks.
    """
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    if len(list(folder.glob("mp_rank_*_model_states.pt"))) > 1:
        raise SystemExit("DeepSpeed's zero_to_fp32 does not merge what tensor parallel ranks have saved.")
    if any(folder.glob("*_optim_states.pt")):
        states: Mapping[str, Any] = get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), tag=folder.name)
        return states
    module: Mapping[str, Any] = torch.load(folder / UNSHARDED, map_location="cpu", weights_only=False)["module"]
    return module  # stage 0 has nothing in shards


def unsharded(folder: Path) -> Mapping[str, Any]:
    """Return the whole parameters of the ranks' files of a folder by name, in the type in which they were trained.

    A parameter is divided along one dimension among the ranks of the last dimension of their mesh; along others it is
    the same everywhere, and so is what is no DTensor. Raises: SystemExit with a sentence for what is divided otherwise,
    and for a rank whose file is not there.
    """
    from torch.distributed.tensor import DTensor

    files = {int(match[2]): path for path in folder.iterdir() if (match := _SHARD.fullmatch(path.name))}
    if 0 not in files:
        raise SystemExit(f"{folder} holds no shards of rank 0.")
    first = _shard(files[0])
    meshes = [tensor.device_mesh.mesh for tensor in first.values() if isinstance(tensor, DTensor)]
    ranks = meshes[0].reshape(-1, meshes[0].shape[-1])[0].tolist() if meshes else [0]
    if lacking := [rank for rank in ranks if rank not in files]:
        raise SystemExit(
            f"{folder} lacks the shards of {len(lacking)} of {len(ranks)} ranks, the first is {lacking[0]}."
        )
    shards = [first if rank == 0 else _shard(files[rank]) for rank in ranks]
    return {name: _parameter(name, [shard.pop(name) for shard in shards]) for name in list(first)}


def _shard(path: Path) -> dict[str, Any]:
    shard: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    return shard


def _parameter(name: str, parts: list[Any]) -> Any:
    placements = getattr(parts[0], "placements", ())
    if not placements:
        return parts[0]
    *others, last = placements
    if not all(placement.is_replicate() for placement in others) or last.is_partial():
        raise SystemExit(f"{name} is divided along several dimensions of the ranks' mesh, which is not merged.")
    local = [part.to_local() for part in parts]
    return torch.cat(local, dim=last.dim) if last.is_shard() else local[0]


def with_adapters(states: Mapping[str, Any], alpha: float) -> Mapping[str, Any]:
    """Return parameters under the names that they have without PEFT, adapters added: W + alpha / r · B·A, in float32.

    `states` without adapters come back as they are. Source: Hu et al., LoRA, arXiv 2106.09685, section 4.1.
    """
    if not any(name.endswith(_DOWN) for name in states):
        return states
    merged = {}
    for name, tensor in states.items():
        if name.endswith((_DOWN, _UP)):
            continue
        module, _, kind = name.rpartition(".")
        module = module.removesuffix(_BASE)
        down_RI, up_OR = (states.get(f"{module}{part}") for part in (_DOWN, _UP))
        if kind == "weight" and down_RI is not None and up_OR is not None:
            product_OI = up_OR.float() @ down_RI.float()
            tensor = tensor.float() + alpha / down_RI.shape[0] * product_OI
        merged[f"{module}.{kind}".removeprefix(_WRAPPED)] = tensor
    return merged


def of_checkpoint(folder: Path, origin: str, *, precision: str, alpha: float, scores: bool, trusts: bool) -> Any:
    """Return the model of a checkpoint of DeepSpeed's. Raises: SystemExit with a sentence."""
    states = with_adapters(gathered(folder), alpha)
    return _filled(loaded(origin, precision=precision, scores=scores, trusts=trusts), states, origin)


def of_shards(folder: Path, origin: str, *, precision: str, alpha: float, scores: bool, trusts: bool) -> Any:  # noqa: ARG001
    """Return the model of ranks' files, with what MODEL says of it. Raises: SystemExit with a sentence."""
    config = AutoConfig.from_pretrained(origin, trust_remote_code=trusts)
    kind = _class_of(config)
    model = kind.from_config(config, dtype=getattr(torch, precision), trust_remote_code=trusts).eval()
    if (Path(origin) / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = GenerationConfig.from_pretrained(origin)
    return _filled(model, unsharded(folder), origin)


def _filled(model: Any, states: Mapping[str, Any], origin: str) -> Any:
    missing, strange = model.load_state_dict(states, strict=False)
    tied = getattr(model, "all_tied_weights_keys", None) or model._tied_weights_keys or ()  # of transformers 5, and 4
    if lacking := sorted(set(missing) - set(tied)):
        raise SystemExit(f"The checkpoint lacks parameters of {origin}: {', '.join(lacking[:3])}.")
    if strange:
        raise SystemExit(f"The checkpoint has parameters that {origin} does not have: {', '.join(strange[:3])}.")
    model.tie_weights()
    return model


def loaded(folder: str | Path, *, precision: str, scores: bool, trusts: bool) -> Any:
    """Return the model of a folder, or of the hub, as one of tokens or of `scores`; `trusts` lets its own code run."""
    more: dict[str, Any] = {"num_labels": 1} if scores else {}
    if scores:
        kind: Any = AutoModelForSequenceClassification
    else:
        kind = _class_of(AutoConfig.from_pretrained(folder, trust_remote_code=trusts))
    return kind.from_pretrained(folder, dtype=getattr(torch, precision), trust_remote_code=trusts, **more).eval()


def _class_of(config: Any) -> Any:
    """Return the class of a model of tokens: one that sees pictures, too, is another."""
    sees = any("ForConditionalGeneration" in name for name in config.architectures or ())
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


def of_adapter(folder: Path, origin: str, *, precision: str, alpha: float, scores: bool, trusts: bool) -> Any:
    """Return MODEL with the adapter of a folder of PEFT's in its weights; ALPHA 0 leaves it scaled as it says.

    Raises: SystemExit with a sentence where it scores and the folder does not hold its head, which PEFT would draw.
    """
    from peft import PeftConfig, PeftModel, load_peft_weights

    if scores and not any(name.endswith(HEADS) for name in load_peft_weights(str(folder), device="cpu")):
        raise SystemExit(f"{folder.name} holds adapters without the trained head: they are no reward model.")
    base = loaded(origin, precision=precision, scores=scores, trusts=trusts)
    config = PeftConfig.from_pretrained(str(folder))
    if alpha:
        config.lora_alpha = alpha
    return PeftModel.from_pretrained(base, str(folder), config=config).merge_and_unload()


def says_the_same(one: Any, other: Any, tokenizer: Any, *, scores: bool) -> bool:
    """Return whether two models draw the same tokens.

    Of models that score, whether they have the same weights, to the bit, and scores that agree in half of the digits
    of their type: on some CPUs sums are taken in another order where tensors lie at another place in memory.
    """
    answers, others_answers = (_said(model, tokenizer, scores=scores) for model in (one, other))
    if not scores:
        return answers == others_answers
    weights, others = one.state_dict(), other.state_dict()
    are_equal = weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)
    share = math.sqrt(torch.finfo(one.dtype).eps)
    return are_equal and torch.allclose(torch.tensor(answers), torch.tensor(others_answers), rtol=share, atol=share)


def _said(model: Any, tokenizer: Any, *, scores: bool) -> list[list[float]]:
    """Return the tokens that follow each of the prompts, or its score."""
    drawn = []
    for prompt in PROMPTS:
        token_ids_BT = tokenizer(prompt, return_tensors="pt")["input_ids"]
        if scores:
            with torch.no_grad():
                drawn.append(model(input_ids=token_ids_BT).logits[0].tolist())
            continue
        mask = torch.ones_like(token_ids_BT)
        whole_BT = model.generate(token_ids_BT, attention_mask=mask, max_new_tokens=NUM_TOKENS, do_sample=False)
        drawn.append(whole_BT[0, token_ids_BT.shape[1] :].tolist())
    return drawn


def main() -> None:
    """Merge, write, and check. Raises: SystemExit with a sentence."""
    options = _arguments()
    if options.made_by:
        subprocess.run(options.made_by, check=True)
    how = {"precision": options.precision, "scores": options.scores, "trusts": options.trust_remote_code}
    load, scores = {"zero": of_checkpoint, "fsdp": of_shards, "adapter": of_adapter}[options.kind], options.scores
    model = load(options.saved, options.model, alpha=options.alpha, **how)
    if options.made_by:
        shutil.rmtree(options.saved.parent)
    tokenizer = AutoTokenizer.from_pretrained(options.model, trust_remote_code=options.trust_remote_code)
    if scores and tokenizer.pad_token_id != tokenizer.eos_token_id:  # padding is passed over, and the end has the score
        model.config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(options.target)
    tokenizer.save_pretrained(options.target)
    if options.kind == "fsdp":
        _take_texts(Path(options.model), options.target)
    again = loaded(options.target, **how)
    if not says_the_same(again, model, tokenizer, scores=scores):
        raise SystemExit("The folder that was written says something else than the checkpoint.")
    print(f"The folder says the same as {options.saved.name}.")


def _take_texts(origin: Path, target: Path) -> None:
    """Copy what a folder holds besides weights and what was written: what prepares pictures, code of its own."""
    for file in origin.iterdir():
        if file.is_file() and not file.name.endswith(_WEIGHTS) and not (target / file.name).exists():
            shutil.copyfile(file, target / file.name)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("zero", "fsdp", "adapter"))
    parser.add_argument("saved", type=Path)
    parser.add_argument("model")
    parser.add_argument("target", type=Path)
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"), required=True)
    parser.add_argument("--alpha", type=float, default=0)
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--made-by", nargs=argparse.REMAINDER, default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()
