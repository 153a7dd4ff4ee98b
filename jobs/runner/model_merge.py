"""Make a Hugging Face folder of what a trainer has saved.

    python model_merge.py zero CHECKPOINT MODEL TARGET --precision bfloat16 [--alpha 16]
    python model_merge.py adapter ADAPTER MODEL TARGET --precision bfloat16 [--alpha 16] [--made-by PROGRAM ...]

`zero` takes a checkpoint of DeepSpeed's, whose shards its own `zero_to_fp32` gathers; `adapter` a folder of PEFT's.
MODEL, which was trained, gives classes, configuration and tokenizer. The precision is that of what is written.

PROGRAM writes the adapter first, into the folder that ADAPTER lies in, which is removed then. With ALPHA adapters are
scaled by it, whatever the folder says: a trainer's program may not know it and write 0.

What was written is loaded again and has to draw the same tokens, the most likely one each time, as what was merged. Run
by the interpreter of the trainer, never imported.
"""

import argparse
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = ("The answer to 12 + 30 is", "Once")
NUM_TOKENS = 16
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


def of_checkpoint(folder: Path, origin: str, *, precision: str, alpha: float) -> Any:
    """Return the model of a checkpoint of DeepSpeed's. Raises: SystemExit with a sentence."""
    states = with_adapters(gathered(folder), alpha)
    # The model's own code, if it has any, has run in the trainer without being asked for, too.
    model = AutoModelForCausalLM.from_pretrained(origin, dtype=getattr(torch, precision), trust_remote_code=True)
    missing, strange = model.load_state_dict(states, strict=False)
    if lacking := sorted(set(missing) - set(model.all_tied_weights_keys)):
        raise SystemExit(f"The checkpoint lacks parameters of {origin}: {', '.join(lacking[:3])}.")
    if strange:
        raise SystemExit(f"The checkpoint has parameters that {origin} does not have: {', '.join(strange[:3])}.")
    model.tie_weights()
    return model


def of_adapter(folder: Path, origin: str, *, precision: str, alpha: float) -> Any:
    """Return MODEL with the adapter of a folder of PEFT's in its weights; ALPHA 0 leaves it scaled as it says."""
    from peft import PeftConfig, PeftModel

    base = AutoModelForCausalLM.from_pretrained(origin, dtype=getattr(torch, precision), trust_remote_code=True)
    config = PeftConfig.from_pretrained(str(folder))
    if alpha:
        config.lora_alpha = alpha
    return PeftModel.from_pretrained(base, str(folder), config=config).merge_and_unload()


def tokens(model: Any, tokenizer: Any) -> list[list[int]]:
    """Return the tokens that follow each of the prompts."""
    drawn = []
    for prompt in PROMPTS:
        token_ids_BT = tokenizer(prompt, return_tensors="pt")["input_ids"]
        mask = torch.ones_like(token_ids_BT)
        whole_BT = model.generate(token_ids_BT, attention_mask=mask, max_new_tokens=NUM_TOKENS, do_sample=False)
        drawn.append(whole_BT[0, token_ids_BT.shape[1] :].tolist())
    return drawn


def main() -> None:
    """Merge, write, and check. Raises: SystemExit with a sentence."""
    options = _arguments()
    if options.made_by:
        subprocess.run(options.made_by, check=True)
    load = of_checkpoint if options.kind == "zero" else of_adapter
    model = load(options.saved, options.model, precision=options.precision, alpha=options.alpha)
    if options.made_by:
        shutil.rmtree(options.saved.parent)
    tokenizer = AutoTokenizer.from_pretrained(options.model, trust_remote_code=True)
    model.eval().save_pretrained(options.target)
    tokenizer.save_pretrained(options.target)
    again = AutoModelForCausalLM.from_pretrained(
        options.target, dtype=getattr(torch, options.precision), trust_remote_code=True
    )
    if tokens(again.eval(), tokenizer) != tokens(model, tokenizer):
        raise SystemExit("The folder that was written draws other tokens than the checkpoint.")
    print(f"The folder draws the same tokens as {options.saved.name}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("zero", "adapter"))
    parser.add_argument("saved", type=Path)
    parser.add_argument("model")
    parser.add_argument("target", type=Path)
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"), required=True)
    parser.add_argument("--alpha", type=float, default=0)
    parser.add_argument("--made-by", nargs=argparse.REMAINDER, default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()
