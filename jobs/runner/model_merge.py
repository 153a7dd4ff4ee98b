"""Make a Hugging Face folder of a checkpoint of DeepSpeed's: `python zero_merge.py CHECKPOINT MODEL TARGET PRECISION`.

Run by the interpreter of the trainer that wrote the checkpoint, never imported. DeepSpeed's own `zero_to_fp32` gathers
the shards; the model that was trained gives classes, configuration and tokenizer. What was written is loaded again and
has to draw the same tokens, the most likely one each time, as what was gathered.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = ("The answer to 12 + 30 is", "Once")
NUM_TOKENS = 16
UNSHARDED = "mp_rank_00_model_states.pt"


def gathered(folder: Path) -> Mapping[str, Any]:
    """Return the whole parameters of a checkpoint by name, in float32 where ZeRO had them in shards.

    Raises: SystemExit with a sentence for one of tensor parallel ranks.
    """
    if len(list(folder.glob("mp_rank_*_model_states.pt"))) > 1:
        raise SystemExit("DeepSpeed's zero_to_fp32 does not merge what tensor parallel ranks have saved.")
    if any(folder.glob("*_optim_states.pt")):
        states: Mapping[str, Any] = get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), tag=folder.name)
        return states
    module: Mapping[str, Any] = torch.load(folder / UNSHARDED, map_location="cpu", weights_only=False)["module"]
    return module  # stage 0 has nothing in shards


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
    folder, origin, target, precision = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    states = gathered(folder)
    # The model's own code, if it has any, has run in the trainer without being asked for, too.
    model = AutoModelForCausalLM.from_pretrained(origin, dtype=getattr(torch, precision), trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(origin, trust_remote_code=True)
    missing, strange = model.load_state_dict(states, strict=False)
    if lacking := sorted(set(missing) - set(model.all_tied_weights_keys)):
        raise SystemExit(f"The checkpoint lacks parameters of {origin}: {', '.join(lacking[:3])}.")
    if strange:
        raise SystemExit(f"The checkpoint has parameters that {origin} does not have: {', '.join(strange[:3])}.")
    model.tie_weights()
    model.eval().save_pretrained(target)
    tokenizer.save_pretrained(target)
    again = AutoModelForCausalLM.from_pretrained(target, dtype=getattr(torch, precision), trust_remote_code=True)
    if tokens(again.eval(), tokenizer) != tokens(model, tokenizer):
        raise SystemExit("The folder that was written draws other tokens than the checkpoint.")
    print(f"The folder draws the same tokens as checkpoint {folder.name}.")


if __name__ == "__main__":
    main()
