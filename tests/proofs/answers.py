"""What a model folder answers to the bundled task's held-out problems, by Transformers alone.

Nothing of the engine but the data's rows is used, so a number is the same question to any trainer's model.
"""

from collections.abc import Sequence
from pathlib import Path

from jobs.catalog.spec.runspec import DataSource
from jobs.engine.data.dataset import Row, load_table

MARK = "####"
LONGEST = 32
BATCH = 128


def held_out_rows(count: int) -> Sequence[Row]:
    """Return the first `count` held-out rows of the bundled task."""
    return load_table(DataSource(), inputs_dir=Path()).held_out[:count]


def speaks(folder: Path) -> bool:
    """Return True if the folder's model writes text; one that scores it has another head."""
    from transformers import AutoConfig

    kinds = AutoConfig.from_pretrained(folder).architectures or []
    return any(kind.endswith("ForCausalLM") for kind in kinds)


def accuracy(folder: Path, rows: Sequence[Row]) -> float:
    """Return the share of rows whose likeliest response ends with the right number behind the mark."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    torch.set_num_threads(1)  # of so small a model; several wait for each other where other work shares the cores
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    num_right = 0
    for begin in range(0, len(rows), BATCH):
        part = rows[begin : begin + BATCH]
        asked = [[{"role": "user", "content": str(row["prompt"])}] for row in part]
        texts = [tokenizer.apply_chat_template(each, tokenize=False, add_generation_prompt=True) for each in asked]
        prompts = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        said = model.generate(**prompts, max_new_tokens=LONGEST, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        answers = tokenizer.batch_decode(said[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True)
        num_right += sum(is_right(answer, str(row["answer"])) for answer, row in zip(answers, part, strict=True))
    return num_right / len(rows)


def is_right(response: str, answer: str) -> bool:
    """Return True if the number behind the last mark, and nothing else, is the answer."""
    _, mark, number = response.rpartition(MARK)
    return bool(mark) and number.strip() == answer
