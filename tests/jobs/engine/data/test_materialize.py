"""Model and data as files for other trainers."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from jobs.adapters.inputs import eval_path, model_path, train_path
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_text
from jobs.engine.data.materialize import REFUSED, main, materialize_inputs
from jobs.engine.problem import RunProblem


def spec_of(trainer: str, algorithm: str, **sections: Any) -> RunSpec:
    return parse_spec({"trainer": {"name": trainer}, "algorithm": algorithm, **sections})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_openrlhf_gets_the_model_folder_and_json_lines_where_its_adapter_says(tmp_path: Path) -> None:
    spec = spec_of("openrlhf", "sft")

    materialize_inputs(spec, tmp_path)

    train, held_out = lines(tmp_path / train_path(spec)), lines(tmp_path / eval_path(spec))
    assert (len(train), len(held_out)) == (3686, 410)
    assert set(train[0]) == {"prompt", "response", "answer", "chosen", "rejected"}
    assert {row["prompt"] for row in train}.isdisjoint(row["prompt"] for row in held_out)
    assert json.loads((tmp_path / model_path(spec) / "config.json").read_text())["architectures"]
    assert (tmp_path / model_path(spec) / "model.safetensors").stat().st_size > 1e6


@pytest.mark.parametrize("algorithm", ["dpo", "rm"])
def test_the_bundled_data_have_pairs_whose_rejected_answer_is_wrong(tmp_path: Path, algorithm: str) -> None:
    spec = spec_of("openrlhf", algorithm)

    materialize_inputs(spec, tmp_path)

    for row in lines(tmp_path / train_path(spec)):
        assert row["chosen"].endswith(f"#### {row['answer']}")
        assert not row["rejected"].endswith(f"#### {row['answer']}")


def test_verl_gets_messages_in_parquet(tmp_path: Path) -> None:
    spec = spec_of("verl", "sft", data={"system_prompt": "Be brief."})

    materialize_inputs(spec, tmp_path)

    (first, *_rest) = pyarrow.parquet.read_table(tmp_path / train_path(spec)).to_pylist()
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant"]
    assert first["messages"][0]["content"] == "Be brief."


def test_verl_gets_prompts_with_their_answer_for_reinforcement_learning(tmp_path: Path) -> None:
    spec = spec_of("verl", "grpo")

    materialize_inputs(spec, tmp_path)

    (first, *_rest) = pyarrow.parquet.read_table(tmp_path / train_path(spec)).to_pylist()
    assert first["prompt"] == [{"role": "user", "content": first["extra_info"]["prompt"]}]
    assert first["reward_model"]["ground_truth"].isdigit()
    assert first["data_source"]


def test_an_upload_is_written_and_a_path_is_left_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    rows = [{"q": f"{i}?", "a": f"{i}!"} for i in range(10)]
    (tmp_path / "inputs" / ("0" * 64)).write_text("\n".join(map(json.dumps, rows)))
    columns = {"prompt_column": "q", "response_column": "a"}
    upload = spec_of("openrlhf", "sft", data={"kind": "upload", "id": f"upload:{'0' * 64}", "eval_share": 0, **columns})
    elsewhere = spec_of("openrlhf", "sft", model={"kind": "path", "id": "/m"}, data={"kind": "path", "id": "/d.jsonl"})

    assert materialize_inputs(upload, tmp_path) == ["model", "train.jsonl"]
    assert lines(tmp_path / train_path(upload)) == rows
    assert materialize_inputs(elsewhere, tmp_path / "other") == []


@pytest.mark.parametrize(
    ("algorithm", "data", "field", "sentence"),
    [
        (
            "sft",
            {"response_column": "solution"},
            "data.response_column",
            "has no column 'solution'. It has: answer,",
        ),
        ("dpo", {"chosen_column": "good"}, "data.chosen_column", "Row 1 of the data has no column 'good'"),
        ("sft", {"messages_column": "chat"}, "data.messages_column", "has no column 'chat'"),
        ("sft", {"eval_share": 0.0001}, "data.eval_share", "0.0001 of 4096 rows is no row"),
    ],
)
def test_data_that_the_trainer_cannot_use_are_refused(
    tmp_path: Path, algorithm: str, data: dict[str, Any], field: str, sentence: str
) -> None:
    with pytest.raises(RunProblem) as refused:
        materialize_inputs(
            spec_of("openrlhf", algorithm, data=data, knobs={"data.apply_chat_template": True}), tmp_path
        )

    assert refused.value.field == field
    assert sentence in refused.value.message


def test_a_refusal_is_told_in_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.json").write_text(to_text(spec_of("openrlhf", "sft", data={"response_column": "solution"})))

    assert main([str(tmp_path)]) == REFUSED
    assert json.loads(capsys.readouterr().out)["field"] == "data.response_column"
