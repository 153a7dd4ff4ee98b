"""Models of the checkpoints of a run, each asked for through the console: what came of them, and what they say.

That of the last checkpoint has to draw the same tokens, the likeliest each time, as the model that the run has left; of
one that scores, to give the same scores. Transformers alone is asked.
"""

import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from console.command_line.api_client import ApiClient, RequestRefused
from tests.journeys.conftest import Stack
from tests.journeys.other_trainers import files_of
from tests.proofs.answers import speaks

PROMPTS = ("Ana picks 12 pens in the morning and 7 in the evening. How many pens in total?", "Once")
NUM_TOKENS = 24
FINAL = "model-final.zip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointModels:
    """How many checkpoints there were, of how many there are models now, and why not of the others.

    `says_the_same`: what the newest that was made says, beside the model that the run has left; None where none was
    made, since the run's own is of that checkpoint.
    """

    checkpoints: int
    models: int
    problem: str
    says_the_same: bool | None


def make_models(client: ApiClient, stack: Stack, token: str, run: str) -> dict[str, Any]:
    """Make a model of each checkpoint that the run has none of; return the CheckpointModels, plain."""
    checkpoints = client.checkpoints(run)
    problems, made = [], []
    for checkpoint in checkpoints:
        step = checkpoint["step"]
        try:
            merge = client.make_model(run, checkpoint["attempt"], step)
        except RequestRefused as error:
            if error.status != 409:  # the run has left a model of it
                problems.append(str(error))
            continue
        merge = client.follow_merge(run, merge["id"])
        if merge["state"] == "finished":
            made.append(step)
        else:
            problems.append(f"checkpoint {step}: {merge['problem']}")
    newest = max((checkpoint["step"] for checkpoint in checkpoints), default=0)
    names = (FINAL, f"model-step-{newest}.zip")
    is_same = None
    if newest in made:
        left = files_of(stack, token, run)
        folder = stack.data_dir / "files" / "runs" / run
        final, model = (words_of(folder / f"a{left[name]['attempt']}" / str(left[name]["id"])) for name in names)
        is_same = final == model
    found = CheckpointModels(
        checkpoints=len(checkpoints),
        models=len(checkpoints) - len(problems),
        problem=" ".join(dict.fromkeys(problems)),
        says_the_same=is_same,
    )
    return asdict(found)


def words_of(archive: Path) -> list[list[float]]:
    """Return the tokens that the model of a zip draws after each prompt, or its scores of the prompts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
        speaking = speaks(Path(folder))
        kind, more = (AutoModelForCausalLM, {}) if speaking else (AutoModelForSequenceClassification, {"num_labels": 1})
        model = kind.from_pretrained(folder, dtype=torch.float32, **more).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
    said = []
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")
        ids = inputs["input_ids"]
        with torch.no_grad():
            if speaking:
                said.append(model.generate(**inputs, max_new_tokens=NUM_TOKENS, do_sample=False)[0].tolist())
            else:
                said.append(model(input_ids=ids).logits[0].tolist())
    return said
