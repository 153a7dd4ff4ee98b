"""Greedy generation with plain transformers, to show what an exported model says: `python -m jobs.runner.generation`.

A process of its own, which has no token of the run and, on CPUs, no network: what it loads came from somebody. One JSON
object on stdin, the arguments of `generate`; one on stdout, {"text", "token_ids"}.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from jobs.box import seccomp


def generate(
    *,
    folder: Path,
    prompt: str,
    system_prompt: str,
    template_variables: Mapping[str, Any],
    device: str,
    max_new_tokens: int,
) -> tuple[str, list[int]]:
    """Return what the model in `folder` says to `prompt` as a user, and the ids of the tokens it said.

    `template_variables` are those that its chat template was given in training. On CPU in float32, as vLLM does for the
    same weights; on CUDA in the number type of the files.
    """
    is_cuda = device == "cuda" and torch.cuda.is_available()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    dtype = "auto" if is_cuda else torch.float32
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        local_files_only=True,
        dtype=dtype,
        use_safetensors=True,  # never a pickle, nor code that comes with the model
        trust_remote_code=False,
    )
    model.to("cuda" if is_cuda else "cpu").eval()
    text = prompt_text(tokenizer, prompt, system_prompt=system_prompt, template_variables=template_variables)
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=not tokenizer.chat_template).to(model.device)
    with torch.inference_mode():
        output = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
        )
    token_ids = output[0, inputs["input_ids"].shape[1] :].tolist()
    return tokenizer.decode(token_ids, skip_special_tokens=True), token_ids


def prompt_text(tokenizer: Any, prompt: str, *, system_prompt: str, template_variables: Mapping[str, Any]) -> str:
    """Return what the model is to continue, as the built-in trainer lays it out (jobs/engine/data/text.py)."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    messages = [*system, {"role": "user", "content": prompt}]
    if not tokenizer.chat_template:
        return "\n\n".join(message["content"] for message in messages)
    text = tokenizer.apply_chat_template(messages, **template_variables, tokenize=False, add_generation_prompt=True)
    return str(text)


def main() -> None:
    """Answer one question. What libraries print goes to stderr; stdout holds the answer alone."""
    question = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        if question["device"] != "cuda":  # whose driver may want sockets of its own
            with contextlib.suppress(seccomp.NotConfined):
                seccomp.give_up(seccomp.CONNECTIONS, seccomp.INSPECTION, seccomp.SYSTEM)
        text, token_ids = generate(**{**question, "folder": Path(question["folder"])})
        json.dump({"text": text, "token_ids": token_ids}, answer)


if __name__ == "__main__":
    main()
