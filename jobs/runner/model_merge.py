"""Make a Hugging Face folder of what a trainer has saved.

    python model_merge.py zero CHECKPOINT MODEL TARGET --precision bfloat16 [--alpha 16] [--scores]
    python model_merge.py adapter ADAPTER MODEL TARGET --precision bfloat16 [--alpha 16] [--made-by PROGRAM ...]

`zero` takes a checkpoint of DeepSpeed's, whose shards its own `zero_to_fp32` gathers; `adapter` a folder of PEFT's.
MODEL, which was trained, gives classes, configuration and tokenizer. The precision is that of what is written. With
`--scores` the checkpoint is of a reward model, which becomes one of transformers' class for sequence classification.
Code that comes with MODEL runs with `--trust-remote-code` alone.

PROGRAM writes the adapter first, into the folder that ADAPTER lies in, which is removed then. With ALPHA adapters are
scaled by it, whatever the folder says: a trainer's program may not know it and write 0.

What was written is loaded again and has to draw the same tokens, the most likely one each time, or to give the same
scores, as what was merged. Run by the interpreter of the trainer, never imported.
"""

import argparse
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

PROMPTS = ("The answer to 12 + 30 is", "Once")
NUM_TOKENS = 16
HEADS = ("score.weight", "classifier.weight")
"""What PEFT keeps as a whole of a model for sequence classification, by the ends of their names."""

UNSHARDED = "mp_rank_00_model_states.pt"
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
    model = loaded(origin, precision=precision, scores=scores, trusts=trusts)
    missing, strange = model.load_state_dict(states, strict=False)
    if lacking := sorted(set(missing) - set(model.all_tied_weights_keys)):
        raise SystemExit(f"The checkpoint lacks parameters of {origin}: {', '.join(lacking[:3])}.")
    if strange:
        raise SystemExit(f"The checkpoint has parameters that {origin} does not have: {', '.join(strange[:3])}.")
    model.tie_weights()
    return model


def loaded(folder: str | Path, *, precision: str, scores: bool, trusts: bool) -> Any:
    """Return the model of a folder, or of the hub, as one of tokens or of `scores`; `trusts` lets its own code run."""
    kind, more = (AutoModelForSequenceClassification, {"num_labels": 1}) if scores else (AutoModelForCausalLM, {})
    return kind.from_pretrained(folder, dtype=getattr(torch, precision), trust_remote_code=trusts, **more).eval()


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


def said(model: Any, tokenizer: Any, *, scores: bool) -> list[list[float]]:
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
    load, scores = of_checkpoint if options.kind == "zero" else of_adapter, options.scores
    model = load(options.saved, options.model, alpha=options.alpha, **how)
    if options.made_by:
        shutil.rmtree(options.saved.parent)
    tokenizer = AutoTokenizer.from_pretrained(options.model, trust_remote_code=options.trust_remote_code)
    if scores and tokenizer.pad_token_id != tokenizer.eos_token_id:  # padding is passed over, and the end has the score
        model.config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(options.target)
    tokenizer.save_pretrained(options.target)
    again = loaded(options.target, **how)
    if said(again, tokenizer, scores=scores) != said(model, tokenizer, scores=scores):
        raise SystemExit("The folder that was written says something else than the checkpoint.")
    print(f"The folder says the same as {options.saved.name}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("zero", "adapter"))
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
