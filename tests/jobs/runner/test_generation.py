"""What an exported model is asked is laid out as its prompts were in training."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.data.examples import render
from jobs.engine.data.text import TextModel
from jobs.runner.generation import prompt_text
from tests.jobs.engine.data.text_models import byte_level, model_folder

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ '' if enable_thinking else '<think></think>' }}{% endif %}"
)


@pytest.mark.parametrize("template", [TEMPLATE, ""])
@pytest.mark.parametrize("variables", [{}, {"enable_thinking": True}])
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_a_prompt_is_that_of_training(tmp_path: Path, template: str, variables: dict[str, bool], system: str) -> None:
    folder = model_folder(tmp_path, byte_level(), template)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    spec = parse_spec({"data": {"system_prompt": system, "chat_template_kwargs": variables}})

    asked = prompt_text(tokenizer, "1+1?", system_prompt=system, template_variables=variables)

    (trained,) = render(spec, [{"prompt": "1+1?", "answer": "2"}], TextModel(folder))
    assert tokenizer(asked, add_special_tokens=not template)["input_ids"] == list(trained.tokens)
