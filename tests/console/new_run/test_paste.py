"""What people paste: texts around a command, and commands that leave out what a run needs."""

import pytest

from console.forms.new_run.form import spec_to_form
from console.forms.new_run.paste import read_paste


@pytest.mark.parametrize(
    "text",
    [
        "Train it:\n```bash\ntrl sft --model_name_or_path a/b --dataset_name c/d\n```\nThen look.\n",
        "\ufefftrl\xa0sft --model_name_or_path\xa0a/b --dataset_name c/d",
    ],
)
def test_what_a_page_puts_around_and_between_words_is_no_part_of_them(text: str) -> None:
    assert read_paste(text).spec.model.id == "a/b"


@pytest.mark.parametrize(
    ("text", "option", "field"),
    [
        ("trl sft --config c.yaml --dataset_name c/d", "--model_name_or_path", "model.id.path"),
        ("trl sft --model_name_or_path a/b", "--dataset_name", "data.id.path"),
        ("python -m openrlhf.cli.train_rm --model.model_name_or_path a/b", "--data.dataset", "data.id.path"),
        ("python -m verl.trainer.sft_trainer model.path=a/b", "data", "data.id.path"),
        ("python -m verl.trainer.main_ppo data.train_files=/a.parquet", "model", "model.id.path"),
    ],
)
def test_what_a_command_does_not_name_is_asked_for_and_the_rest_is_read(text: str, option: str, field: str) -> None:
    pasted = read_paste(text)

    assert option in {each.option for each in pasted.unread if "names no" in each.why}
    assert spec_to_form(pasted.spec)[field] == ""
